#!/usr/bin/env python3
"""Times the sample order of a large corpus against megatron-core's, in turns of one run.

Both build the document, sample and shuffle index of the same document lengths: ours in
bench/sample_index/sample_index_bench.cpp, theirs as GPTDataset does, with numpy's RandomState and
megatron-core's C++ helpers (megatron.core.datasets.helpers_cpp). The arrays must be equal. Every
turn is a fresh process, without files; time is wall-clock, memory the peak of the process. Last,
ours packs the documents once by best fit (--document-packing-strategy bfd_split), which
megatron-core does not.

Usage: run.py [--documents 100000000] [--mean-length 1024] [--seq-length 1024] [--epochs 1]
              [--turns 3]
Environment: SAMPLE_INDEX_BENCH (default build/bin/sample_index_bench)
"""
import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

SEED = 1234
TARGET_S = 10.0  # for 10^8 documents or samples, whichever are more


def helpers():
    """Loads megatron-core's extension alone, without torch."""
    core = importlib.util.find_spec("megatron").submodule_search_locations
    for place in core:
        for file in pathlib.Path(place, "core/datasets").glob("helpers_cpp*.so"):
            loader = importlib.machinery.ExtensionFileLoader("helpers_cpp", str(file))
            spec = importlib.util.spec_from_loader("helpers_cpp", loader)
            module = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
            return module
    sys.exit("megatron-core has no helpers_cpp")


def build_theirs(file, sequence, epochs):
    """The steps of megatron-core 0.15's GPTDataset for whole epochs, in a process of its own."""
    import numpy

    built = helpers()
    lengths = numpy.memmap(file, dtype=numpy.int32, mode="r")
    begin, cpu_begin = time.perf_counter(), time.process_time()
    tokens = int(numpy.sum(lengths))
    random = numpy.random.RandomState(SEED)
    documents = numpy.mgrid[0:epochs, 0 : len(lengths)][1]
    documents[:] = numpy.arange(len(lengths), dtype=numpy.int32)
    documents = documents.reshape(-1).astype(numpy.int32)
    random.shuffle(documents)
    samples = built.build_sample_idx_int32(lengths, documents, sequence, epochs, tokens, True, 1)
    total = (epochs * tokens - 1) // sequence
    shuffled = numpy.arange(0, total, dtype=numpy.uint32)
    random.shuffle(shuffled)
    seconds, cpu_s = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    import xxhash

    checksums = [xxhash.xxh3_64_hexdigest(array.data) for array in (documents, samples, shuffled)]
    result = dict(seconds=seconds, cpu_s=cpu_s, peak_mib=peak)
    result |= dict(documents=len(documents), samples=total)
    print(json.dumps(result | dict(checksums=checksums)))


def write_lengths(file, count, mean):
    """Log-normal lengths, as of web pages, with some empty documents."""
    import numpy

    random = numpy.random.default_rng(1)
    with open(file, "wb") as output:
        while count > 0:
            block = min(count, 1 << 22)
            lengths = random.lognormal(0, 1, block) * mean / numpy.exp(0.5)
            lengths[random.random(block) < 0.001] = 0
            output.write(lengths.astype(numpy.int32).tobytes())
            count -= block


def turn(command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def measure(arguments, file):
    """Alternates the contenders and returns their turns."""
    import numpy

    program = os.environ.get("SAMPLE_INDEX_BENCH", "build/bin/sample_index_bench")
    tokens = int(numpy.sum(numpy.memmap(file, dtype=numpy.int32, mode="r"), dtype=numpy.int64))
    # As many samples as whole epochs have, so that no final epoch is shuffled apart.
    samples = (arguments.epochs * tokens - 1) // arguments.seq_length
    ours = [program, file, arguments.seq_length, samples, SEED]
    theirs = [sys.executable, __file__, "--theirs", file, "--seq-length", arguments.seq_length]
    theirs += ["--epochs", arguments.epochs]
    turns = {"megatron": [], "megatron-core": []}
    for _ in range(arguments.turns):
        for name, command in (("megatron", ours), ("megatron-core", theirs)):
            turns[name].append(turn([str(word) for word in command]))
            print(f"{name}: {turns[name][-1]['seconds']:.2f} s", file=sys.stderr, flush=True)
    return turns


def packing(arguments, file):
    """Returns what best-fit packing of the same documents takes."""
    program = os.environ.get("SAMPLE_INDEX_BENCH", "build/bin/sample_index_bench")
    packed = turn([program, "pack", file, str(arguments.seq_length)])
    return {name: round(value, 5) for name, value in packed.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=10**8)
    parser.add_argument("--mean-length", type=int, default=1024, help="tokens of a document")
    parser.add_argument("--seq-length", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--theirs", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.theirs:
        return build_theirs(arguments.theirs, arguments.seq_length, arguments.epochs)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "lengths")
        write_lengths(file, arguments.documents, arguments.mean_length)
        turns = measure(arguments, file)
        packed = packing(arguments, file)
    ours, theirs = turns["megatron"], turns["megatron-core"]
    if any(turn["checksums"] != ours[0]["checksums"] for turn in ours + theirs):
        sys.exit(f"the indices differ: {ours[0]} {theirs[0]}")
    medians = {name: statistics.median(t["seconds"] for t in turns[name]) for name in turns}
    scale = max(ours[0]["documents"], ours[0]["samples"]) / 1e8
    result = dict(
        documents=ours[0]["documents"],
        samples=ours[0]["samples"],
        megatron_s=round(medians["megatron"], 2),
        megatron_core_s=round(medians["megatron-core"], 2),
        megatron_cpu_s=round(statistics.median(turn["cpu_s"] for turn in ours), 2),
        megatron_core_cpu_s=round(statistics.median(turn["cpu_s"] for turn in theirs), 2),
        times_as_fast=round(medians["megatron-core"] / medians["megatron"], 2),
        megatron_mib=max(turn["peak_mib"] for turn in ours),
        megatron_core_mib=max(turn["peak_mib"] for turn in theirs),
        seconds_per_1e8=round(medians["megatron"] / scale, 2),
        target_met=medians["megatron"] / scale <= TARGET_S
        and medians["megatron"] <= medians["megatron-core"],
        packing=packed,
    )
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
