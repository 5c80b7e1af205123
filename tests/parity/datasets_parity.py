"""Compares `megatron dataset show` and `megatron preprocess-data` with the real megatron-core.

It does so on random corpora and blends.

Every sample of train, valid and test, in order: random element types, document lengths (one-token
documents too), splits, seeds, sequence lengths, several epochs, blends with and without weights,
one blend per split, mock data; the cache files as numpy reads them; datasets written by
preprocess-data byte for byte.
Usage: datasets_parity.py [--cases 28] [--seed 1]    environment: MEGATRON
"""
import argparse
import glob
import json
import os
import random
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import mcore_data
from program import run
from report import Report

SPLIT_CHOICES = (
    "969, 30, 1",
    "949,50,1",
    "8,1,1",
    "90,10",
    "1,0,0",
    "0.7,0.2,0.1",
    "1,1,1",
    "60,0,40",
    "100",
    "33.3,33.3,33.3",
)
DTYPES = (np.uint16, np.int32, np.uint8, np.int8, np.int16, np.int64)


def random_corpus(draw, prefix):
    """Makes documents of a random shape and element type.
    There are enough of them that no split of SPLIT_CHOICES is empty."""
    longest = draw.choice((1, 3, 30, 200))
    documents = [
        [draw.randrange(120) for _ in range(draw.randint(1, longest))]
        for _ in range(draw.randint(1050, 1400))
    ]
    mcore_data.write(prefix, documents, draw.choice(DTYPES))
    return sum(map(len, documents)), max(map(len, documents))


def random_weights(draw, count):
    kind = draw.choice(("none", "none", "equal", "odd", "uneven", "many digits"))
    if kind == "none":
        return None
    if kind == "equal":
        return [1.0] * count
    if kind == "odd":
        return [float(draw.randint(1, 99)) for _ in range(count)]
    if kind == "uneven":
        return [0.001] * (count - 1) + [1 - 0.001 * (count - 1)]
    return [draw.random() + 1e-3 for _ in range(count)]


def words(blend):
    prefixes, weights = blend
    return (
        prefixes
        if weights is None
        else [word for pair in zip(map(repr, weights), prefixes) for word in pair]
    )


def compare(report, name, theirs, arguments):
    """All samples of all splits; `theirs` holds None where megatron-core made no dataset."""
    compared = 0
    for dataset, split in zip(theirs, mcore_data.SPLITS):
        if dataset is None:
            continue
        lines = run(
            "dataset",
            "show",
            *arguments,
            "--split-name",
            split,
            "--start",
            0,
            "--count",
            len(dataset) + 1,
        ).stdout.splitlines()
        ours = [json.loads(line) for line in lines]
        if len(ours) != len(dataset):
            return report.result(
                name, False, f"{split}: {len(ours)} samples instead of {len(dataset)}"
            )
        for index, sample in enumerate(ours):
            if sample != {"index": index, "tokens": mcore_data.text(dataset, index)}:
                return report.result(
                    name,
                    False,
                    f"{split} sample {index}: {sample['tokens'][:8]} "
                    f"instead of {mcore_data.text(dataset, index)[:8]}",
                )
        compared += len(ours)
    report.result(name, compared > 0, f"{compared} samples")


def check_corpus(report, draw, folder, number):
    count = draw.choice((1, 1, 1, 2, 3, 12))
    prefixes = [f"{folder}/corpus{i}" for i in range(count)]
    tokens, _ = zip(*(random_corpus(draw, prefix) for prefix in prefixes))
    weights = random_weights(draw, count)
    per_split = number % 4 == 3
    split = draw.choice(SPLIT_CHOICES)
    seq_length = draw.choice((2, 7, 16, 33, 64, 128))
    seed = draw.choice((0, 1, 1234, 2**31, 2**32 - 1, draw.randrange(2**32)))
    most = max(2, min(1500, int(draw.choice((0.05, 0.5, 1.7, 4)) * sum(tokens) / seq_length)))
    sizes = [
        draw.randint(1, most),
        draw.randint(1, max(1, most // 10)),
        draw.randint(1, max(1, most // 10)),
    ]
    if weights is None and draw.random() < 0.3:
        sizes = [None, None, None]
    surplus = draw.choice((0.005, 0.0, 0.05))
    if weights is None and count > 1:  # every split of every corpus needs one sample
        seq_length = 2
    blend = (prefixes, weights)
    common = dict(
        seq_length=seq_length, seed=seed, sizes=sizes, cache=f"{folder}/peer", surplus=surplus
    )
    arguments = [
        "--seq-length",
        seq_length,
        "--seed",
        seed,
        "--num-samples",
        ",".join("none" if size is None else str(size) for size in sizes),
        "--mid-level-dataset-surplus",
        surplus,
    ]
    if per_split:
        blends = [blend, (prefixes[:1], None), (prefixes[-1:], [2.0])]
        if None in sizes:
            blends[2] = None
        theirs = mcore_data.build(blend_per_split=blends, **common)
        for name, one in zip(mcore_data.SPLITS, blends):
            arguments += [f"--{name}-data-path", *words(one)] if one else []
    else:
        arguments += ["--data-path", *words(blend), "--split", split]
        try:
            theirs = mcore_data.build(blend=blend, split=split, **common)
        except AssertionError:  # a corpus whose part is shorter than one sample: both refuse
            said = run("dataset", "show", *arguments, expect=2).stderr
            return report.result(
                f"datasets {number}: refused by both",
                "is shorter than one sample" in said,
                said.splitlines()[0],
            )
    described = (
        "none"
        if weights is None
        else ",".join(f"{weight:.4g}" for weight in weights[:3]) + ("..." if count > 3 else "")
    )
    name = (
        f"datasets {number}: {count} corpora, weights {described}, "
        f"{'per split' if per_split else split}, seq {seq_length}, seed {seed}, sizes {sizes}"
    )
    if draw.random() < 0.5:
        arguments += ["--data-cache-path", f"{folder}/ours"]
    compare(report, name, theirs, arguments)


def check_cache(report, draw, folder):
    """Cache files hold megatron-core's arrays, and a second run reads them."""
    prefix = f"{folder}/corpus"
    random_corpus(draw, prefix)
    common = dict(seq_length=16, seed=5, sizes=[900, 30, 20], cache=f"{folder}/peer")
    theirs = mcore_data.build(blend=([prefix, prefix], [0.25, 0.75]), split="8,1,1", **common)
    arguments = [
        "--data-path",
        0.25,
        prefix,
        0.75,
        prefix,
        "--split",
        "8,1,1",
        "--seq-length",
        16,
        "--seed",
        5,
        "--num-samples",
        "900,30,20",
        "--data-cache-path",
        f"{folder}/ours",
    ]
    for attempt in ("built", "from the cache"):
        compare(report, f"datasets: blend {attempt}", theirs, arguments)
    key = lambda pair: (pair[0], pair[1].tobytes())
    ours, peer = sorted(read_all(folder, "ours"), key=key), sorted(
        read_all(folder, "peer"), key=key
    )
    same = len(ours) == len(peer) > 0 and all(
        a[0] == b[0] and a[1].dtype == b[1].dtype and np.array_equal(a[1], b[1])
        for a, b in zip(ours, peer)
    )
    report.result("datasets: cache files equal megatron-core's", same, f"{len(ours)} arrays")


def check_peer_cache(report, draw, folder):
    """The files that megatron-core wrote, under our names and without a stamp, are read."""
    prefix = f"{folder}/corpus"
    random_corpus(draw, prefix)
    old = os.stat(f"{prefix}.idx").st_mtime - 10  # an index must be newer than its data
    os.utime(f"{prefix}.idx", (old, old))
    common = dict(seq_length=16, seed=5, sizes=[900, 30, 20], cache=f"{folder}/peer")
    theirs = mcore_data.build(blend=([prefix], None), split="8,1,1", **common)
    arguments = ["--data-path", prefix, "--split", "8,1,1", "--seq-length", 16, "--seed", 5]
    arguments += ["--num-samples", "900,30,20", "--data-cache-path", f"{folder}/ours"]
    compare(report, "datasets: before megatron-core's cache", theirs, arguments)
    after_hash = lambda file: os.path.basename(file).split("-", 1)[1]
    peer = {after_hash(file): file for file in glob.glob(f"{folder}/peer/*.npy")}
    for file in glob.glob(f"{folder}/ours/*.npy"):
        shutil.copyfile(peer[after_hash(file)], file)
    for file in glob.glob(f"{folder}/ours/*stamp.json"):
        os.remove(file)
    compare(report, "datasets: from megatron-core's cache", theirs, arguments)
    built = glob.glob(f"{folder}/ours/*stamp.json")
    report.result("datasets: megatron-core's cache is not built again", not built, f"{built}")


def read_all(folder, where):
    return [
        (os.path.basename(file).split("-", 1)[1], np.load(file))
        for file in glob.glob(f"{folder}/{where}/*.npy")
    ]


def check_mock(report):
    theirs = mcore_data.build(seq_length=4096, seed=11, sizes=[60, 7, 5], vocab_size=6000)
    arguments = [
        "--mock-data",
        "--vocab-size",
        6000,
        "--seq-length",
        4096,
        "--seed",
        11,
        "--num-samples",
        "60,7,5",
    ]
    for dataset, split in zip(theirs, mcore_data.SPLITS):
        lines = run(
            "dataset", "show", *arguments, "--split-name", split, "--count", 200
        ).stdout.splitlines()
        same = len(lines) == 200 and all(
            json.loads(line)["tokens"] == mcore_data.text(dataset, index)
            for index, line in enumerate(lines)
        )
        report.result(f"datasets: mock {split}", same, f"{len(lines)} samples of {len(dataset)}")


def check_preprocess(report, draw, folder, vocab_size):
    """Sends a NullTokenizer corpus through preprocess-data.
    The same ids go through megatron-core's builder."""
    eod = vocab_size - 1
    texts = [draw.choice(([], [[]], 1, 1, 1, 1, 3)) for _ in range(3000)]
    documents = []
    with open(f"{folder}/in.jsonl", "w", encoding="utf-8") as file:
        for shape in texts:
            sequences = (
                [
                    [draw.randrange(vocab_size) for _ in range(draw.randint(0, 60))]
                    for _ in range(shape)
                ]
                if isinstance(shape, int)
                else shape
            )
            value = [" ".join(map(str, sequence)) for sequence in sequences]
            file.write(
                json.dumps(
                    {"id": draw.random(), "body": value[0] if len(value) == 1 else value, "é": None}
                )
                + "\n"
            )
            kept = [list(sequence) for sequence in sequences if sequence]
            if kept:
                kept[-1].append(eod)
            documents.append(kept)
    mcore_data.write(f"{folder}/peer", documents, np.uint16 if vocab_size < 65500 else np.int32)
    run(
        "preprocess-data",
        "--input",
        f"{folder}/in.jsonl",
        "--json-keys",
        "body",
        "--output-prefix",
        f"{folder}/ours",
        "--tokenizer-type",
        "NullTokenizer",
        "--vocab-size",
        vocab_size,
        "--append-eod",
        "--workers",
        3,
    )
    for extension in ("bin", "idx"):
        with open(f"{folder}/peer.{extension}", "rb") as peer, open(
            f"{folder}/ours_body_document.{extension}", "rb"
        ) as ours:
            report.result(
                f"preprocess-data: vocabulary {vocab_size}, .{extension} equals megatron-core's",
                peer.read() == ours.read(),
            )


def check_modes(report, draw, folder):
    """Datasets with a mode per sequence: megatron-core writes and merges them, as we do."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset, IndexedDatasetBuilder

    counts = {}
    for name in ("a", "b"):
        builder = IndexedDatasetBuilder(f"{folder}/{name}.bin", dtype=np.int32, multimodal=True)
        for _ in range(50):
            lengths = [draw.randint(1, 9) for _ in range(draw.randint(1, 4))]
            modes = [draw.choice((0, 0, 1, 5)) for _ in lengths]
            tokens = [draw.randrange(70000) for _ in range(sum(lengths))]
            builder.add_document(torch.tensor(tokens), lengths, modes)
            for mode in modes:
                counts[mode] = counts.get(mode, 0) + 1
        builder.finalize(f"{folder}/{name}.idx")
    whole = IndexedDatasetBuilder(f"{folder}/peer.bin", dtype=np.int32, multimodal=True)
    for name in ("a", "b"):
        whole.add_index(f"{folder}/{name}")
    whole.finalize(f"{folder}/peer.idx")
    prefixes = [f"{folder}/a", f"{folder}/b", "--output-prefix", f"{folder}/ours"]
    run("dataset", "merge", *prefixes, "--multimodal")
    for extension in ("bin", "idx"):
        report.result(
            f"modes: merged .{extension} equals megatron-core's",
            Path(f"{folder}/peer.{extension}").read_bytes()
            == Path(f"{folder}/ours.{extension}").read_bytes(),
        )
    told = run("dataset", "info", f"{folder}/ours", "--multimodal").stdout.splitlines()
    wanted = [f"mode {mode}: {counts[mode]} sequences" for mode in sorted(counts)]
    report.result(
        "modes: dataset info counts them", [line for line in told if "mode" in line] == wanted
    )
    ours, *parts = [
        IndexedDataset(f"{folder}/{name}", multimodal=True) for name in ("ours", "a", "b")
    ]  # their indices are views of files that close with them
    report.result(
        "modes: megatron-core reads ours",
        [int(mode) for mode in ours.index.sequence_modes]
        == [int(mode) for part in parts for mode in part.index.sequence_modes],
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=28)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    report, draw = Report(), random.Random(options.seed)
    checks = [
        (
            f"datasets {number}",
            lambda folder, number=number: check_corpus(report, draw, folder, number),
        )
        for number in range(options.cases)
    ]
    checks += [
        ("datasets: cache", lambda folder: check_cache(report, draw, folder)),
        ("datasets: peer cache", lambda folder: check_peer_cache(report, draw, folder)),
        ("datasets: mock", lambda folder: check_mock(report)),
        ("datasets: modes", lambda folder: check_modes(report, draw, folder)),
    ]
    checks += [
        (
            f"preprocess-data {size}",
            lambda folder, size=size: check_preprocess(report, draw, folder, size),
        )
        for size in (1000, 65499, 65500)
    ]
    for name, check in checks:
        folder = tempfile.mkdtemp()
        with report.guard(name):
            check(folder)
        shutil.rmtree(folder)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
