"""How long ranks take to start: from the exec of `megatron launch --nproc-per-node N` to the line that rank 0 prints when all have met and can speak
to each other, beside one rank without a launcher. Writes results/startup.json.

  bench/run.sh startup [--ranks 8] [--rounds 7]"""
import argparse
import json
import statistics
import subprocess
import time

import machine
from inputs import MEGATRON, ROOT

RUN = ["pretrain", "gpt", "--num-layers", "1", "--hidden-size", "16", "--num-attention-heads", "2", "--seq-length", "8", "--vocab-size", "32",
       "--tokenizer-type", "NullTokenizer", "--mock-data", "--micro-batch-size", "1", "--train-iters", "1", "--lr", "1e-3", "--eval-iters", "0"]
JOINED = "using world size:"  # printed once the communicators exist


def seconds_to_join(command):
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
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


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    commands = {"one rank, no launcher": [MEGATRON, *RUN],
                f"{arguments.ranks} ranks, megatron launch": [MEGATRON, "launch", "--nproc-per-node", str(arguments.ranks), "--", *RUN]}
    times = {name: [] for name in commands}
    for _ in range(arguments.rounds + 1):  # the first round fills the page cache
        for name, command in commands.items():
            times[name].append(round(seconds_to_join(command), 3))
    results = {name: {"seconds": values[1:], "median_s": statistics.median(values[1:])} for name, values in times.items()}
    for name, result in results.items():
        print(f"{name:28} {result['median_s']:.2f} s   ({min(result['seconds']):.2f} to {max(result['seconds']):.2f})")
    record = {"machine": machine.describe(), "command": " ".join(RUN), "results": results}
    (ROOT / "bench/results/startup.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
