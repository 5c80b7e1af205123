#!/usr/bin/env python3
"""Times the loader of training data against that of --mock-data, as a share of a step.

A data set of random documents is written with the library and read with the settings of a run: two
workers, which prefetch. First the loader runs alone (bench/loader/loader_bench.cpp), with a pause
between two batches as a step on a GPU makes. Then `megatron pretrain gpt` trains a GPT of 4 layers
of 256 on the data and on mock data in turns; its timer batch-generator holds the time that a step
waits for data, tensors included. Shares are those of the median step of mock data: the wait, and
the CPU time of the loader's threads, which on a CPU runs in parallel with the step.

Usage: run.py [--seq-length 512 2048 8192] [--train-seq-length 512] [--rows 4] [--batches 400]
              [--iterations 15] [--turns 3] [--tokens 20000000]
Environment: MEGATRON (default build/bin/megatron), LOADER_BENCH (default build/bin/loader_bench)
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

VOCABULARY = 8192
PAUSE_MS = 5
TARGET = 0.001  # of a step
STEP = re.compile(r"elapsed time per iteration \(ms\): ([0-9.]+)")
WAIT = re.compile(r"batch-generator \.+: \(([0-9.]+), ([0-9.]+)\)")


def output_of(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def alone(program, prefix, length, arguments):
    """Returns the medians over turns: microseconds a batch, of the data and of mock data."""
    turns = {"data": [], "mock": []}
    for _ in range(arguments.turns):
        for name, source in (("data", prefix), ("mock", "mock")):
            command = [program, source, length, arguments.rows, arguments.batches, PAUSE_MS]
            turns[name].append(json.loads(output_of([*command, VOCABULARY])))
    return {
        name: {key: statistics.median(turn[key] for turn in results) for key in results[0]}
        for name, results in turns.items()
    }


def train(program, source, length, arguments):
    """Returns the milliseconds of the steps after the third, and their waits for data."""
    command = [program, "pretrain", "gpt", "--num-layers", 4, "--hidden-size", 256]
    command += ["--num-attention-heads", 4, "--seq-length", length, "--bf16"]
    command += ["--max-position-embeddings", length, "--micro-batch-size", arguments.rows]
    command += ["--global-batch-size", arguments.rows, "--train-iters", arguments.iterations]
    command += ["--lr", 1e-4, "--tokenizer-type", "NullTokenizer", "--vocab-size", VOCABULARY]
    command += ["--eval-iters", 0, "--log-interval", 1, "--timing-log-level", 2, *source]
    log = output_of(command)
    steps = [float(found.group(1)) for found in STEP.finditer(log)]
    waits = [float(found.group(2)) for found in WAIT.finditer(log)]
    if len(steps) != arguments.iterations or len(waits) != arguments.iterations:
        sys.exit(f"the log of pretrain lacks steps or the timer batch-generator:\n{log}")
    return steps[3:], waits[3:]


def trained(program, prefix, length, arguments):
    """Returns medians in milliseconds over the steps of all turns."""
    sources = {"data": ["--data-path", prefix, "--split", "1,0,0"], "mock": ["--mock-data"]}
    steps, waits = {"data": [], "mock": []}, {"data": [], "mock": []}
    for _ in range(arguments.turns):
        for name, source in sources.items():
            new_steps, new_waits = train(program, source, length, arguments)
            steps[name] += new_steps
            waits[name] += new_waits
    result = {}
    for name in sources:
        result[f"{name}_step_ms"] = round(statistics.median(steps[name]), 2)
        result[f"{name}_wait_ms"] = round(statistics.median(waits[name]), 4)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq-length", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--train-seq-length", type=int, nargs="*", default=[512])
    parser.add_argument("--rows", type=int, default=4, help="samples of a batch")
    parser.add_argument("--batches", type=int, default=400)
    parser.add_argument("--iterations", type=int, default=15)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=20_000_000)
    arguments = parser.parse_args()
    program = os.environ.get("MEGATRON", "build/bin/megatron")
    bench = os.environ.get("LOADER_BENCH", "build/bin/loader_bench")
    missed = False
    with tempfile.TemporaryDirectory() as folder:
        prefix = pathlib.Path(folder, "data")
        output_of([bench, "make", prefix, arguments.tokens, VOCABULARY])
        cpu_us = {}
        for length in arguments.seq_length:
            result = alone(bench, prefix, length, arguments)
            cpu_us[length] = result["data"]["cpu_us"]
            print(json.dumps({"seq_length": length, "rows": arguments.rows} | result), flush=True)
        for length in arguments.train_seq_length:
            result = trained(program, prefix, length, arguments)
            step = result["mock_step_ms"]
            result["wait_share"] = result["data_wait_ms"] / step
            result["more_than_mock"] = (result["data_wait_ms"] - result["mock_wait_ms"]) / step
            if length in cpu_us:
                result["cpu_share"] = cpu_us[length] / 1e3 / step / (os.cpu_count() or 1)
            result["met"] = result["wait_share"] <= TARGET
            missed = missed or not result["met"]
            print(json.dumps({"train_seq_length": length} | result), flush=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
