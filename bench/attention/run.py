"""Causal attention, forward and backward: ours beside PyTorch's scaled_dot_product_attention, turn about in one run."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def turn(command: list[str], dtype: str, options: argparse.Namespace) -> list[dict]:
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        arguments = ["--dtype", dtype, "--repeats", str(options.repeats), "--json", file.name, *options.shapes]
        environment = {**os.environ, "OMP_NUM_THREADS": str(options.threads)}
        subprocess.run([*command, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
        return json.load(open(file.name, encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="+", default=["4x64x12x12x64", "4x256x12x12x64", "1x1024x12x12x64", "1x1024x12x4x64", "1x8192x12x12x64"])
    parser.add_argument("--dtypes", nargs="+", default=["f32", "bf16"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3, help="calls of each shape in a round")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--bench", default=str(ROOT / "build/bin/attention_bench"))
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/attention.json")
    options = parser.parse_args()

    sides = {"megatron": [options.bench], "torch": [sys.executable, str(HERE / "torch_sdpa.py")]}
    results = []
    print(f"{'shape (b x s x heads x groups x d)':36} {'dtype':5} {'ours, forward + backward ms':>28} {'PyTorch':>20} {'ratio':>7}")
    for dtype in options.dtypes:
        rounds = [{side: turn(command, dtype, options) for side, command in sides.items()} for _ in range(options.rounds)]
        for i, shape in enumerate(options.shapes):
            row = {"shape": shape, "dtype": dtype, "threads": options.threads}
            for side in sides:
                row[side] = {key: statistics.median(r[side][i][key] for r in rounds) for key in ("forward_ms", "backward_ms")}
            ours, torch = (sum(row[side].values()) for side in sides)
            row["ratio"] = torch / ours
            results.append(row)
            cells = [f"{row[side]['forward_ms']:9.2f} + {row[side]['backward_ms']:8.2f}" for side in sides]
            print(f"{shape:36} {dtype:5} {cells[0]:>28} {cells[1]:>20} {row['ratio']:6.2f}x", flush=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"\nmedians of {options.rounds} rounds of {options.repeats} calls, {options.threads} threads -> {options.output}")


if __name__ == "__main__":
    main()
