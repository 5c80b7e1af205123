"""Times latent attention against transformers' DeepseekV3Attention on the same weights and inputs.

Contenders take turns, each in a fresh process: forward and backward of two sequences of 1,024
tokens, and a decode step of one sequence and of eight at 8,192 tokens. Ours decodes from latents
(--cache-mla-latents), as transformers does. The norms of results and gradients must agree."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "suite"))
import commands  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402

SIZES = (1024, 16, 384, 256, 64, 32, 64)  # hidden, heads, ranks of q and kv, qk, rotated, v
SMALL = (64, 4, 24, 16, 8, 8, 8)
CONTENDERS = ("megatron", "transformers, eager", "transformers, sdpa")
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-2}
WARM = 2  # steps of a turn that are not counted
# name: (length, batch, tokens in the caches, times as fast as transformers that are wanted)
CASES = {
    "train_2x1024": (1024, 2, 0, 2.0),
    "decode_1x8192": (1, 1, 8192, 3.0),
    "decode_8x8192": (1, 8, 8192, 3.0),
}
SMOKE_CASES = {"tiny_train_2x32": (32, 2, 0, 0.0), "tiny_decode_2x64": (1, 2, 64, 0.0)}


def command_of(contender, path, dtype, case, steps):
    _, batch, context, _ = case
    mode, numbers = ("decode", [context, batch]) if context else ("train", [])
    if contender == "megatron":
        program = [commands.our_program("attention_block_bench"), path, dtype, mode]
    else:
        implementation = contender.split(", ")[1]
        program = [sys.executable, HERE / "latent_turn.py", path, dtype, mode, implementation]
    return [str(word) for word in (*program, steps, *numbers)]


def check_losses(name, dtype, found):
    """Ends the run if a contender computes something else than transformers does in eager mode."""
    expected = found["transformers, eager"]["losses"][0]
    for contender, seen in found.items():
        if not abs(seen["losses"][0] / expected - 1) <= TOLERANCES[dtype]:
            raise SystemExit(f"{name} {dtype}: {contender} has {seen['losses'][0]}, not {expected}")


def print_table(rows):
    print("\n" + tables.contender_head("case"))
    for row in rows:
        ours = row["found"]["megatron"]["median_ms"]
        print(*tables.contender_lines(f"{row['name']} {row['dtype']}", row["found"]), sep="\n")
        best = min(row["found"][name]["median_ms"] for name in CONTENDERS[1:])
        verdict = "met" if best / ours >= row["wanted"] else "not met"
        wanted = f"wanted: ≥ {row['wanted']} × the faster one"
        print(f"| | {wanted} | | {best / ours:.2f} × | {verdict} |")


def runs_of(name, dtype, case, steps, path, work):
    """The contenders of a case, {name: Run}."""
    runs = {}
    for contender in CONTENDERS:
        turn = commands.Turn(command_of(contender, path, dtype, case, steps + WARM))
        watch = partial(turns.watch, turn, steps + WARM, WARM, contender, work)
        runs[contender] = measure.Run(contender, watch, f"{name} {dtype}")
    return runs


def inputs_of(name, case, sizes, work):
    """Writes the inputs of a case once."""
    path = work / name
    if not path.exists():
        words = [sys.executable, HERE / "latent_turn.py", path, "inputs", *case[:3], *sizes]
        subprocess.run([str(word) for word in words], check=True)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a case's name: train, decode_1, bf16")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=5, help="counted steps of a turn")
    parser.add_argument("--output", help="a file for all results, as JSON")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: tests this program")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    sizes, cases = (SMALL, SMOKE_CASES) if options.smoke else (SIZES, CASES)
    rounds, steps = (1, 1) if options.smoke else (options.rounds, options.steps)
    pairs = [
        (name, dtype) for name in cases for dtype in TOLERANCES if options.only in f"{name}-{dtype}"
    ]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        runs = []
        for name, dtype in pairs:
            path = inputs_of(name, cases[name], sizes, work)
            runs.append(runs_of(name, dtype, cases[name], steps, path, work))
        progress = measure.Progress([run for each in runs for run in each.values()] * rounds)
        for (name, dtype), each in zip(pairs, runs, strict=True):
            found = measure.measure(each, rounds, progress)
            check_losses(name, dtype, found)
            rows.append({"name": name, "dtype": dtype, "wanted": cases[name][3], "found": found})
    print_table(rows)
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            json.dump({"machine": machine.describe(), "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
