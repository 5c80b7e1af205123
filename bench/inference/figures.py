"""What is wanted of the engine, and what was measured."""
import json
import subprocess

import commands
import model

CHATS = (161, 338)  # mean tokens of prompts and answers of ShareGPT (Kwon et al., 2023)
LONG = (4096, 1024)


def gemm_limits(sizes, tokens):
    """Measures the least time of the GEMMs of a prefill, and the speed at which memory is read."""
    shapes = [f"{tokens},{rows},{columns}" for rows, columns in model.layer_gemms(sizes)]
    widest = max(model.layer_gemms(sizes), key=lambda shape: shape[0] * shape[1])
    program = [commands.our_program("gemm_bench"), "--dtype", "bf16", "--turns", "5"]
    lines = run_lines([*program, *shapes, f"1,{widest[0]},{widest[1]},packed"])
    forward = sum(
        min(line["own_seconds"], line["library_seconds"])
        for line in lines
        if line.get("gemm") == "forward"
    )
    read = next(line["read_bytes_per_second"] for line in lines if line.get("gemm") == "decode")
    head = model.BYTES * sizes["hidden_size"] * sizes["vocab_size"] / read
    return {
        "prefill_ms": (sizes["num_hidden_layers"] * forward + head) * 1e3,
        "read_bytes_per_second": read,
    }


def better(a, b):
    """The limits of two measurements: what was best in either."""
    return {
        "prefill_ms": min(a["prefill_ms"], b["prefill_ms"]),
        "read_bytes_per_second": max(a["read_bytes_per_second"], b["read_bytes_per_second"]),
    }


def schedule(requests, steps=2000):
    """The time of a plan, and the part of the cache that is wasted, by lengths of requests."""
    program = [commands.our_program("inference_bench"), "schedule", steps]
    return {
        name: run_lines([*program, *lengths, requests])[0]
        for name, lengths in {"chats": CHATS, "long texts": LONG}.items()
    }


def run_lines(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


class Figures:
    """Collects {"what", "wanted", "measured", "unit", "met"} where all was measured."""

    def __init__(self, cases):
        """`cases` is {case: {contender: summary}}."""
        self.cases_, self.rows = cases, []

    def ms(self, case, contender="megatron"):
        found = self.cases_.get(case, {}).get(contender)
        return found and found["median_ms"]

    def add(self, what, measured, at_least=None, at_most=None, unit=" ×"):
        """Adds a figure; `measured` is called with the times, and fails where one is missing."""
        try:
            value = measured()
        except TypeError:  # arithmetic with None
            return
        met = value >= at_least if at_least is not None else value <= at_most
        wanted = f"≥ {at_least}" if at_least is not None else f"≤ {at_most}"
        self.rows.append(
            {"what": what, "wanted": wanted + unit, "measured": value, "unit": unit, "met": met}
        )


def of_limits(figures, limits, sizes, positions):
    bytes_read = model.weight_bytes(sizes) + model.cache_bytes(sizes, positions)
    least_ms = bytes_read / limits["read_bytes_per_second"] * 1e3
    figures.add(
        "decode_1: share of the time to read weights and cache",
        lambda: least_ms / figures.ms("decode_1"),
        at_least=0.9,
        unit="",
    )
    figures.add(
        "prefill_1024: share of the time of its GEMMs",
        lambda: limits["prefill_ms"] / figures.ms("prefill_1024"),
        at_least=0.8,
        unit="",
    )


def against_peers(figures):
    for case, peer, wanted in (
        ("decode_1", "llama.cpp", 1.2),
        ("prefill_1024", "llama.cpp", 4.0),
        ("generate_1", "transformers", 3.0),
    ):
        figures.add(
            f"{case}: times as fast as {peer}",
            lambda case=case, peer=peer: figures.ms(case, peer) / figures.ms(case),
            at_least=wanted,
        )


def of_batches(figures, requests):
    figures.add(
        f"{requests} requests together: times the throughput of one at a time",
        lambda: requests * figures.ms("generate_1") / figures.ms("generate_32"),
        at_least=6.0,
    )
    figures.add(
        f"{requests} requests together: time between tokens, over that of one",
        lambda: figures.ms("decode_32") / figures.ms("decode_1"),
        at_most=2.0,
    )


def of_decoding(figures):
    for cache in ("int8", "fp8_e4m3"):
        figures.add(
            f"decode_8_4096: time with {cache} in the cache, over that with bf16",
            lambda cache=cache: figures.ms("decode_8_4096", cache) / figures.ms("decode_8_4096"),
            at_most=1.0,
        )
    figures.add(
        "verify_1: time of a pass with four drafts, over that of a token",
        lambda: figures.ms("verify_1") / figures.ms("decode_1"),
        at_most=1.5,
    )


def of_engine(figures, schedules):
    for name, found in schedules.items():
        figures.add(
            f"cache that is wasted, {name}", lambda f=found: f["waste"], at_most=0.04, unit=""
        )
    plan_ms = max((found["plan_ms"] for found in schedules.values()), default=None)
    figures.add(
        "scheduling: share of a step of 32",
        lambda: plan_ms / figures.ms("decode_32"),
        at_most=0.02,
        unit="",
    )
    figures.add(
        "prefix in the cache: first token, over that without it",
        lambda: figures.ms("hit_2049") / figures.ms("miss_2049"),
        at_most=0.1,
        unit="",
    )
    figures.add(
        "start to first token", lambda: figures.ms("start") / 1e3, at_most=2.0, unit=" s"
    )


def print_table(rows):
    print("\n| figure | wanted | measured | |")
    print("| --- | ---: | ---: | --- |")
    for row in rows:
        print(
            f"| {row['what']} | {row['wanted']} | {row['measured']:.3g}{row['unit']} "
            f"| {'met' if row['met'] else 'not met'} |"
        )
