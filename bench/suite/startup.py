"""Times how long ranks take to start, against one rank without a launcher.

The time runs from the exec of `megatron launch --nproc-per-node N` to the line that rank 0 prints
when all have met and can speak to each other. Of one rank of GPT-2 124M (4 × 256, mock data), it
times the stages up to the end of the first step. It writes results/startup.json.

  bench/run.sh startup [--ranks 8] [--rounds 7]"""
import argparse
import json
import statistics
import subprocess
import time

import cases
import commands
import machine
from inputs import MEGATRON, ROOT

RUN = [
    "pretrain",
    "gpt",
    "--num-layers",
    "1",
    "--hidden-size",
    "16",
    "--num-attention-heads",
    "2",
    "--seq-length",
    "8",
    "--vocab-size",
    "32",
    "--tokenizer-type",
    "NullTokenizer",
    "--mock-data",
    "--micro-batch-size",
    "1",
    "--train-iters",
    "1",
    "--lr",
    "1e-3",
    "--eval-iters",
    "0",
]
JOINED = "using world size:"  # printed once the communicators exist


def seconds_to_join(command):
    start = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    joined = None
    for line in process.stdout:
        if JOINED in line:
            joined = time.monotonic() - start
            break
    process.kill()  # and with it the ranks
    process.wait()
    if joined is None:
        raise SystemExit(f"{' '.join(command)} ended without the line '{JOINED}'")
    return joined


STAGES = {  # how the first line begins that is printed when a stage is over
    "program loaded, settings read": JOINED,
    "weights and gradients set aside": " > number of parameters",
    "optimizer made, weights drawn": "Theoretical memory",
    "data opened": "[before the start of training step]",
    "first step": " [",
}


def seconds_of_stages(dtype):
    """{stage: seconds} of one start of GPT-2."""
    start = last = time.monotonic()
    command = commands.our_start(cases.GPT2_STEP, dtype)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    stages, seconds = iter(STAGES.items()), {}
    stage, mark = next(stages)
    for line in process.stdout:
        if stage is None or not line.startswith(mark):
            continue
        now = time.monotonic()
        seconds[stage], last = round(now - last, 3), now
        stage, mark = next(stages, (None, None))
    if process.wait() != 0 or stage is not None:
        raise SystemExit(f"{' '.join(map(str, command))} ended before its stage '{stage}' did")
    return seconds | {"from exec to the end of the first step": round(last - start, 3)}


def measure_stages(rounds):
    """{dtype: {stage: median seconds}}, turn about."""
    turns = {dtype: [] for dtype in cases.DTYPES}
    for _ in range(rounds):
        for dtype, seen in turns.items():
            seen.append(seconds_of_stages(dtype))
    return {
        dtype: {stage: statistics.median(seconds[stage] for seconds in seen) for stage in seen[0]}
        for dtype, seen in turns.items()
    }


def show_stages(stages):
    print(f"\n{'GPT-2 124M, 4 x 256: seconds of':40}" + "".join(f"{dtype:>8}" for dtype in stages))
    for stage in next(iter(stages.values())):
        print(f"  {stage:38}" + "".join(f"{seconds[stage]:8.2f}" for seconds in stages.values()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    commands = {
        "one rank, no launcher": [MEGATRON, *RUN],
        f"{arguments.ranks} ranks, megatron launch": [
            MEGATRON,
            "launch",
            "--nproc-per-node",
            str(arguments.ranks),
            "--",
            *RUN,
        ],
    }
    times = {name: [] for name in commands}
    for _ in range(arguments.rounds + 1):  # the first round fills the page cache
        for name, command in commands.items():
            times[name].append(round(seconds_to_join(command), 3))
    results = {
        name: {"seconds": values[1:], "median_s": statistics.median(values[1:])}
        for name, values in times.items()
    }
    for name, result in results.items():
        print(
            f"{name:28} {result['median_s']:.2f} s   "
            f"({min(result['seconds']):.2f} to {max(result['seconds']):.2f})"
        )
    stages = measure_stages(arguments.rounds)
    show_stages(stages)
    record = {
        "machine": machine.describe(),
        "command": " ".join(RUN),
        "results": results,
        "stages": stages,
    }
    (ROOT / "bench/results/startup.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
