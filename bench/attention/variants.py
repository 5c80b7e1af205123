"""Times the variants of attention against plain attention of as many operations, on the CPU.

attention_bench runs the kernels, forward and backward, in turns in one process: sinks and softcap
against plain causal attention, chunks against a batch of shorter sequences, and windows against
causal attention times the share of the scores that a window leaves. attention_block_bench runs
blocks of self-attention with norms of q and k and with a gate of the output.

  bench/run.sh attention-variants [--only bf16|fp32] [--turns N]
  bench/run.sh attention-variants --smoke   tiny shapes: tests this program"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/suite"))
import machine  # noqa: E402

BIN = Path(os.environ.get("MEGATRON", ROOT / "build/bin/megatron")).parent
DTYPES = {"bf16": "bf16", "fp32": "f32"}  # as attention_bench spells them
MOST_COST, LEAST_SHARE = 1.05, 0.8


def scores(length, window):
    """How many scores causal attention with that window has."""
    return window * length - window * (window - 1) // 2


def kernel_times(shapes, dtype, turns):
    with tempfile.NamedTemporaryFile() as file:
        command = [BIN / "attention_bench", "--dtype", DTYPES[dtype], "--turns", turns]
        command = [str(word) for word in (*command, "--json", file.name, *shapes)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        rows = json.loads(Path(file.name).read_text())
    return {row["shape"]: (row["forward_ms"], row["backward_ms"]) for row in rows}


def row(name, dtype, times, relative, wanted, is_met):
    cells = " | ".join([*(f"{ms:.1f} ms" for ms in times), *(f"{x:.2f}" for x in relative)])
    verdict = ("met" if all(is_met(x) for x in relative) else "not met") if wanted else ""
    print(f"| {name}, {dtype} | {cells} | {wanted} | {verdict} |", flush=True)


def head():
    print(
        "| variant | forward | backward | forward, relative | backward, relative | wanted | |\n"
        "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    )


def print_costs(dtype, turns, length, heads):
    """Prints the times over those of plain attention with as many operations."""
    plain, chunk = f"1x{length}x{heads}x{heads}x64", length // 4
    batch = f"4x{chunk}x{heads}x{heads}x64"
    peers = {
        f"{plain}:sinks": plain,
        f"{plain}:softcap=50": plain,
        f"{plain}:chunk={chunk}": batch,
    }
    times = kernel_times([plain, batch, *peers], dtype, turns)
    row(f"plain {plain}", dtype, times[plain], (1, 1), "", lambda _: True)
    row(f"plain {batch}", dtype, times[batch], (1, 1), "", lambda _: True)
    for shape, peer in peers.items():
        relative = [own / other for own, other in zip(times[shape], times[peer], strict=True)]
        name = shape.split(":")[1]
        row(name, dtype, times[shape], relative, f"≤ {MOST_COST}", lambda x: x <= MOST_COST)


def print_windows(dtype, turns, length, heads, windows):
    """Prints the share of the time that is proportional to the number of scores."""
    plain = f"1x{length}x{heads}x{heads}x64"
    shapes = {f"{plain}:window={window}": window for window in windows}
    times = kernel_times([plain, *shapes], dtype, turns)
    row(f"plain {plain}", dtype, times[plain], (1, 1), "", lambda _: True)
    for shape, window in shapes.items():
        share = scores(length, window) / scores(length, length)
        relative = [share * all_ms / ms for ms, all_ms in zip(times[shape], times[plain])]
        name = shape.split(":")[1]
        row(name, dtype, times[shape], relative, f"≥ {LEAST_SHARE}", lambda x: x >= LEAST_SHARE)


def print_blocks(dtype, turns):
    command = [str(BIN / "attention_block_bench"), dtype, "variants", str(turns)]
    line = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    times = json.loads(line)
    for name in ("qk_norm", "output_gate"):
        own, plain = times[f"{name}_ms"], times[f"{name}_plain_ms"]
        verdict = "met" if own / plain <= MOST_COST else "not met"
        words = name.replace("_", " ")
        cells = f"{own:.1f} ms | {plain:.1f} ms | {own / plain:.2f}"
        print(f"| {words}, {dtype} | {cells} | {verdict} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=DTYPES)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--part", choices=("costs", "windows", "blocks"))
    parser.add_argument("--smoke", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    dtypes = [options.only] if options.only else list(DTYPES)
    windows = [64, 32] if options.smoke else [4096, 2048, 1024, 512, 256]
    length, heads, turns = (128, 2, 1) if options.smoke else (4096, 8, options.turns)
    parts = [options.part] if options.part else ["costs", "windows", "blocks"]
    for dtype in dtypes:
        if "costs" in parts:
            head()
            print_costs(dtype, turns, length, heads)
            print()
        if "windows" in parts:
            head()
            print_windows(dtype, turns, 128 if options.smoke else 8192, heads, windows)
            print()
    if "blocks" in parts and not options.smoke:
        print("| block | forward and backward | plain | relative | |")
        print("| --- | ---: | ---: | ---: | --- |")
        for dtype in dtypes:
            print_blocks(dtype, options.turns)


if __name__ == "__main__":
    main()
