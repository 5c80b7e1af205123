"""Times Mamba-2 and gated delta nets against transformers' eager layers on the same weights and
inputs, and against the GEMMs of their projections alone.

Contenders take turns, each in a fresh process: forward and backward of 2,048 tokens. The norms of
results and gradients must agree. What follows is of ours alone, in bf16: linear attention, forward
and backward, of 2,048 and 131,072 tokens, and a decode step after 1,024 and 32,768."""
import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import latent  # it finds the suite's modules

import commands
import limits
import machine
import measure
import tables
import targets
import turns

HERE = Path(__file__).resolve().parent
PEER = "transformers, eager"
WARM = 4  # steps of a turn that are not counted: the first ones of ours still fetch memory
LEAST_SPEED, LEAST_SHARE = 3.0, 0.7
MOST_OF_LINEAR, MOST_MEMORY, MOST_OF_STEP = 1.1, 2.0, 1.1


@dataclasses.dataclass(frozen=True)
class Layer:
    kind: str
    length: int
    hidden: int
    groups: int
    heads: int
    key_dim: int
    value_dim: int
    taps: int = 4

    def gemms(self):
        """As the suite's cases list them: (rows, out, in, how many)."""
        keys, values = self.groups * self.key_dim, self.heads * self.value_dim
        out = 2 * keys + 2 * values + self.heads * (1 if self.kind == "mamba2" else 2)
        return [(self.length, out, self.hidden, 1), (self.length, self.hidden, values, 1)]

    def scan_bytes(self, tokens):
        """Inputs and results of linear attention, and their gradients: bf16, and fp32 gates."""
        channels = 2 * self.groups * self.key_dim + 2 * self.heads * self.value_dim
        return 2 * tokens * (2 * channels + 4 * 2 * self.heads)


@dataclasses.dataclass(frozen=True)
class Plan:
    layers: tuple
    lengths: tuple  # of linear attention
    contexts: tuple  # of decode steps


PLAN = Plan(
    (
        Layer("mamba2", 2048, hidden=2048, groups=8, heads=64, key_dim=128, value_dim=64),
        # Qwen3-Next's
        Layer(
            "gated_delta_net", 2048, hidden=2048, groups=16, heads=32, key_dim=128, value_dim=128
        ),
    ),
    lengths=(2048, 131_072),
    contexts=(1024, 32_768),
)
SMOKE_PLAN = Plan(
    (
        Layer("mamba2", 96, hidden=64, groups=2, heads=8, key_dim=16, value_dim=16),
        Layer("gated_delta_net", 96, hidden=64, groups=2, heads=8, key_dim=16, value_dim=16),
    ),
    lengths=(64, 128),
    contexts=(100, 200),
)


class Runs:
    """Makes the runs of a layer, {name: Run}, by what they measure."""

    def __init__(self, layer, plan, steps, work):
        self.layer, self.plan_, self.steps_, self.work_ = layer, plan, steps, work
        self.path_ = work / layer.kind
        words = [HERE / "recurrent_turn.py", self.path_, "inputs", *dataclasses.astuple(layer)]
        subprocess.run([sys.executable, *map(str, words)], check=True)

    def run(self, name, title, command, *more):
        steps = self.steps_ + WARM
        turn = commands.Turn([str(word) for word in (*command, steps, *more)])
        watch = partial(turns.watch, turn, steps, WARM, f"{title} {name}", self.work_)
        return measure.Run(name, watch, f"{self.layer.kind} {title}")

    def ours(self, name, title, dtype, mode, *more):
        program = [commands.our_program("attention_block_bench"), self.path_, dtype, mode]
        return self.run(name, title, program, *more)

    def training(self, dtype, details):
        peer = [sys.executable, HERE / "recurrent_turn.py", self.path_, dtype]
        gemms = partial(limits.of_gemms, self.layer, dtype, details)
        return {
            "megatron": self.ours("megatron", dtype, dtype, "recurrent-train"),
            PEER: self.run(PEER, dtype, peer),
            limits.BEST: measure.Run(limits.BEST, gemms, f"{self.layer.kind} {dtype}"),
        }

    def scan(self):
        return {
            tokens: self.ours(f"{tokens:,} tokens", "scan bf16", "bf16", "scan", tokens)
            for tokens in self.plan_.lengths
        }

    def decoding(self):
        mode = ("decode bf16", "bf16", "recurrent-decode")
        return {
            tokens: self.ours(f"after {tokens:,}", *mode, tokens) for tokens in self.plan_.contexts
        }


def target(what, wanted, measured, unit="×"):
    row = {"what": what, "unit": unit, "target": wanted, "measured": measured, "possible": None}
    return row | {"met": measured >= wanted}


def at_most(what, wanted, measured):
    return target(what, wanted, measured) | {"met": measured <= wanted, "at_most": True}


def of_training(layer, dtype, found):
    ours, theirs, gemms = (found[name]["median_ms"] for name in ("megatron", PEER, limits.BEST))
    name = f"{layer.kind} {dtype}"
    return [
        target(f"{name}: times as fast as transformers", LEAST_SPEED, theirs / ours),
        target(f"{name}: share of the bound of GEMMs alone", LEAST_SHARE, gemms / ours, unit=""),
    ]


def of_scan(layer, found):
    print(f"\n{layer.kind}: linear attention in bf16, forward and backward")
    for tokens, seen in found.items():
        print(
            f"  {tokens:7,} tokens {seen['median_ms']:10.1f} ms, "
            f"peak memory {(seen['peak_bytes'] or 0) >> 20:,} MiB, of which "
            f"inputs, results and gradients {layer.scan_bytes(tokens) >> 20:,} MiB"
        )
    (short, first), (long, last) = found.items()
    grown = last["median_ms"] / first["median_ms"] * short / long
    memory = (last["peak_bytes"] or 0) / layer.scan_bytes(long)
    name = f"{layer.kind}: time of a token among {long:,} over that among {short:,}"
    return [
        at_most(name, MOST_OF_LINEAR, grown),
        at_most(f"{layer.kind}: peak memory over that of its tensors", MOST_MEMORY, memory),
    ]


def of_decoding(layer, found):
    print(f"\n{layer.kind}: a decode step in bf16")
    for tokens, seen in found.items():
        print(f"  after {tokens:6,} tokens {seen['median_ms']:8.3f} ms")
    (short, first), (long, last) = found.items()
    name = f"{layer.kind}: decode step after {long:,} tokens over that after {short:,}"
    return [at_most(name, MOST_OF_STEP, last["median_ms"] / first["median_ms"])]


def measure_all(plan, only, rounds, steps, work):
    """Measures the figures whose names contain `only`. Returns rows and targets."""
    measured = []
    for layer in plan.layers:
        runs = Runs(layer, plan, steps, work)
        parts = [(dtype, runs.training(dtype, {})) for dtype in latent.TOLERANCES]
        parts += [("scan", runs.scan()), ("decode", runs.decoding())]
        measured += [
            (layer, part, each) for part, each in parts if only in f"{layer.kind}-{part}"
        ]
    progress = measure.Progress([run for *_, each in measured for run in each.values()] * rounds)
    rows, wanted, table = [], [], []
    for layer, part, each in measured:
        found = measure.measure(each, rounds, progress)
        if part in latent.TOLERANCES:
            same = {name: found[name] for name in ("megatron", PEER)}
            latent.check_losses(layer.kind, part, same)
            table += tables.contender_lines(f"{layer.kind} {part}", found)
            wanted += of_training(layer, part, found)
        else:
            wanted += (of_scan if part == "scan" else of_decoding)(layer, found)
        rows.append({"layer": layer.kind, "part": part, "found": found})
    if table:
        print("", tables.contender_head("case"), *table, sep="\n")
    return rows, wanted


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of a name: mamba2, net-bf16, scan")
    parser.add_argument("--rounds", type=int, default=2, help="turns of each contender")
    parser.add_argument("--steps", type=int, default=3, help="counted steps of a turn")
    parser.add_argument("--output", help="a file for all results, as JSON")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: tests this program")
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    plan = SMOKE_PLAN if options.smoke else PLAN
    rounds, steps = (1, 1) if options.smoke else (options.rounds, options.steps)
    with tempfile.TemporaryDirectory() as folder:
        rows, wanted = measure_all(plan, options.only, rounds, steps, Path(folder))
    if not options.smoke:
        print(*targets.lines({"targets": wanted}), sep="\n")
    if options.output:
        with open(options.output, "w", encoding="utf-8") as file:
            result = {"machine": machine.describe(), "rows": rows, "targets": wanted}
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
