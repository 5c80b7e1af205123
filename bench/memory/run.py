"""Measures the memory of runs of the real program against what `megatron plan --memory` predicts.

Each configuration trains three steps on mock data in fresh processes with --log-memory. Rank 0's
and the largest rank's tables come from metrics.jsonl. The bench fails if a prediction of the total
is off by more than 3 %, or if more than 3 % of a measured peak is unexplained.

  bench/run.sh memory              all configurations: about eight minutes on two cores
  bench/run.sh memory --only NAME  one of them (repeatable)
  bench/run.sh memory --smoke      two small ones: tests this program and measures nothing"""
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

MEGATRON = os.environ.get("MEGATRON", str(ROOT / "build/bin/megatron"))
TOLERANCE = 0.03  # of the measured peak
MEBIBYTE = 1 << 20


def shape(layers, hidden, heads, length, micro, batch, vocabulary=32000):
    return [
        *["--num-layers", layers, "--hidden-size", hidden, "--num-attention-heads", heads],
        *["--seq-length", length, "--max-position-embeddings", length],
        *["--micro-batch-size", micro, "--global-batch-size", batch, "--vocab-size", vocabulary],
    ]


LLAMA = [
    *["--swiglu", "--normalization", "RMSNorm", "--position-embedding-type", "rope"],
    *["--disable-bias-linear", "--untie-embeddings-and-output-weights"],
]
GROUPS = ["--group-query-attention", "--num-query-groups", 2]
EXPERTS = [
    *["--num-experts", 8, "--moe-router-topk", 2, "--moe-ffn-hidden-size", 512],
    *["--moe-token-dispatcher-type", "alltoall", "--moe-grouped-gemm"],
    *["--moe-router-load-balancing-type", "aux_loss", "--moe-aux-loss-coeff", 1e-2],
]
NO_DROPOUT = ["--hidden-dropout", 0, "--attention-dropout", 0]

# In flags, FOLDER stands for a temporary folder of the run.
FOLDER = "FOLDER"
ALL_OFFLOADS = [
    *["--cpu-offloading", "--cpu-offloading-weights", "--optimizer-cpu-offload"],
    *["--offload-folder", FOLDER],
]
PRECISE = "--use-precision-aware-optimizer"

# name: (ranks, flags)
CONFIGURATIONS = {
    "gpt fp32": (1, shape(6, 512, 8, 512, 4, 4)),
    "gpt bf16": (1, [*shape(12, 768, 12, 256, 4, 4), "--bf16"]),
    "llama bf16": (1, [*shape(8, 512, 8, 512, 4, 4), *LLAMA, *NO_DROPOUT, "--bf16"]),
    "gqa fp32": (1, [*shape(6, 512, 8, 512, 4, 4), *LLAMA, *GROUPS, "--qk-layernorm"]),
    "moe bf16": (1, [*shape(6, 512, 8, 512, 2, 2), *EXPERTS, "--bf16"]),
    "accumulation bf16": (1, [*shape(8, 512, 8, 512, 2, 16), "--bf16"]),
    "long sequence bf16": (1, [*shape(2, 256, 4, 16384, 1, 1), *LLAMA, *GROUPS, "--bf16"]),
    "dp 2 zero 1 bf16": (
        2,
        [*shape(8, 512, 8, 512, 2, 4), "--bf16", "--use-distributed-optimizer"],
    ),
    "tp 2 sp bf16": (
        2,
        [*shape(8, 512, 8, 1024, 2, 4), *LLAMA, "--bf16"]
        + ["--tensor-model-parallel-size", 2, "--sequence-parallel"],
    ),
    "pp 2 fp32": (
        2,
        [*shape(8, 512, 8, 512, 2, 8), "--pipeline-model-parallel-size", 2],
    ),
    "cp 2 bf16": (
        2,
        [*shape(4, 512, 8, 4096, 1, 1), *LLAMA, *GROUPS, *NO_DROPOUT, "--bf16"]
        + ["--context-parallel-size", 2],
    ),
    "optimizer offload bf16": (
        1,
        [*shape(8, 512, 8, 512, 4, 4), "--bf16"]
        + ["--optimizer-cpu-offload", "--offload-folder", FOLDER],
    ),
    "int8 moments bf16": (
        1,
        [*shape(8, 512, 8, 512, 4, 4), "--bf16", PRECISE]
        + ["--exp-avg-dtype", "int8", "--exp-avg-sq-dtype", "int8"],
    ),
    "error feedback bf16": (
        1,
        [*shape(8, 512, 8, 512, 2, 4), "--bf16", PRECISE]
        + ["--main-grads-dtype", "bf16", "--main-grads-error-feedback"],
    ),
    "full recompute bf16": (
        1,
        [*shape(8, 512, 8, 512, 4, 4), "--bf16", "--recompute-granularity", "full"]
        + ["--recompute-method", "uniform", "--recompute-num-layers", 1],
    ),
    "dp 2 zero 2 bf16": (2, [*shape(8, 512, 8, 512, 2, 4), "--bf16", "--zero-stage", 2]),
    "dp 2 zero 3 bf16": (2, [*shape(8, 512, 8, 512, 2, 4), "--bf16", "--zero-stage", 3]),
    "activation offload bf16": (
        1,
        [*shape(8, 512, 8, 512, 4, 4), "--bf16"]
        + ["--cpu-offloading", "--offload-folder", FOLDER],
    ),
    "all offloads bf16": (1, [*shape(6, 512, 8, 512, 4, 4), "--bf16", *ALL_OFFLOADS]),
    "dp 2 zero 3, all offloads bf16": (
        2,
        [*shape(6, 512, 8, 512, 2, 4), "--bf16", "--zero-stage", 3, *ALL_OFFLOADS],
    ),
}
SMOKE = {
    "smoke": (1, shape(2, 128, 2, 128, 2, 2, 1024)),
    "smoke tp 2": (
        2,
        [*shape(2, 128, 2, 128, 2, 2, 1024), "--bf16", "--tensor-model-parallel-size", 2],
    ),
}


def run(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def train(ranks, flags):
    """The tables of all ranks after the last of three steps."""
    launcher = ["launch", "--nproc-per-node", ranks, "--"] if ranks > 1 else []
    with tempfile.TemporaryDirectory() as folder:
        flags = [folder if flag == FOLDER else flag for flag in flags]
        run(
            [MEGATRON, *launcher, "pretrain", "gpt", *flags, "--tokenizer-type", "NullTokenizer"]
            + ["--mock-data", "--train-iters", 3, "--lr", "1e-4", "--eval-iters", 0]
            + ["--log-memory", "--log-memory-interval", 1, "--device", "cpu"]
            + ["--tensorboard-dir", folder]
        )
        lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [line for line in map(json.loads, lines) if "memory_of_ranks" in line][-1][
        "memory_of_ranks"
    ]


def plan(ranks, flags):
    """The predicted tables by rank, of the first pipeline."""
    command = [MEGATRON, "plan", "--memory", "--world-size", ranks, *flags, "--json"]
    return {
        entry["rank"]: entry["memory_bytes"] for entry in json.loads(run(command))["ranks"]
    }


def measure(name, ranks, flags):
    measured, planned = train(ranks, flags), plan(ranks, flags)
    largest = max(planned, key=lambda rank: planned[rank]["peak"])
    return {
        "name": name,
        "ranks": ranks,
        "flags": list(map(str, flags)),
        "rank": largest,
        "measured": measured[largest],
        "predicted": planned[largest],
        "error": planned[largest]["peak"] / measured[largest]["peak"] - 1,
        "unexplained": max(abs(rank["unexplained"]) / rank["peak"] for rank in measured),
    }


def lines_of(result):
    measured, predicted = result["measured"], result["predicted"]
    lines = [
        f"{result['name']}: {result['ranks']} ranks, rank {result['rank']}",
        f"  {'MiB':22} {'measured':>10} {'predicted':>10}",
    ]
    for key in measured:
        if key != "units":
            lines.append(
                f"  {key:22} {measured[key] / MEBIBYTE:10.1f} {predicted[key] / MEBIBYTE:10.1f}"
            )
    return [*lines, f"  error {result['error']:+.2%}, unexplained {result['unexplained']:.2%}"]


def main():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh memory",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", action="append", help="a configuration's name; repeatable")
    parser.add_argument("--smoke", action="store_true", help="writes no results")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/memory.json")
    options = parser.parse_args()
    cases = SMOKE if options.smoke else CONFIGURATIONS
    unknown = set(options.only or []) - set(cases)
    if unknown:
        sys.exit(f"no configuration {', '.join(sorted(unknown))}; there are: {', '.join(cases)}")
    record = {"machine": machine.describe(), "tolerance": TOLERANCE, "results": []}
    for name, (ranks, flags) in cases.items():
        if options.only and name not in options.only:
            continue
        record["results"].append(measure(name, ranks, flags))
        print("\n".join(lines_of(record["results"][-1])), flush=True)
        if not options.smoke and not options.only:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(record, indent=1) + "\n")
    far = [
        result["name"]
        for result in record["results"]
        if abs(result["error"]) > TOLERANCE or result["unexplained"] > TOLERANCE
    ]
    sys.exit(f"not within {TOLERANCE:.0%}: {', '.join(far)}" if far else 0)


if __name__ == "__main__":
    main()
