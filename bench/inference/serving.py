"""Times `megatron serve` beside the same requests without a server, and how long it takes to start.

The model is a random Llama of 0.5B in bfloat16, and the clients are those of `megatron bench-serve`
on the same cores. Contenders take turns, each in a fresh process. It writes results/serving.json.

  bench/run.sh serving [--only start] [--rounds 3] [--model FOLDER]"""
import argparse
import json
import os
import statistics
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "suite"))
import commands  # noqa: E402
import figures  # noqa: E402
import inputs  # noqa: E402
import machine  # noqa: E402
import measure  # noqa: E402
import model  # noqa: E402
import run  # noqa: E402
import serving_turns  # noqa: E402
import turns  # noqa: E402
from serving_turns import Case  # noqa: E402

LATENCIES = {
    "ttft_ms": "time to first token",
    "itl_ms": "inter-token latency",
    "e2e_ms": "end to end",
}
STATISTICS = ("mean", "median", "p90", "p95", "p99")  # as bench-serve names them
CASES = {
    "together_32": Case("engine", 128, 128, requests=32, steps=2, warm=1),
    "stream_32": Case("batch", 128, 128, requests=96, varies=True),
}
SMOKE_CASES = {
    "together_32": Case("engine", 130, 5, requests=3, clients=3, steps=1, warm=1),
    "stream_32": Case("batch", 8, 5, requests=5, clients=2, varies=True),
}
START = run.CASES["start"]


def throughput_runs(name, case, folder, sizes, work, loads):
    """The two contenders of a case, {name: Run}."""
    requests = serving_turns.Requests(case, sizes, work / name)
    if case.offline == "engine":
        numbers = [case.warm + case.steps, case.prompt, case.new_tokens, case.requests]
        command = [commands.our_program("inference_bench"), folder, "whole", *numbers]
        turn = commands.Turn(serving_turns.words_of(*command))
        offline = partial(turns.watch, turn, case.warm + case.steps, case.warm, name, work)
    else:
        offline = partial(serving_turns.turn_of_batch, case, folder, sizes, work, requests)
    server = partial(serving_turns.turn_of_server, case, folder, sizes, work, requests, loads)
    return {
        case.offline: measure.Run(case.offline, offline, name),
        "serve": measure.Run("serve", server, name),
    }


def start_runs(folder, sizes, work):
    generate = partial(run.start_of_program, START, folder, sizes["vocab_size"])
    contenders = {"generate": generate} | {
        f"serve, {until}": partial(serving_turns.start_of_server, START, until, folder, sizes, work)
        for until in ("health", "token")
    }
    return {name: measure.Run(name, turn, "start") for name, turn in contenders.items()}


def wanted_figures(found, cases):
    rows = figures.Figures(found)
    for name, case in cases.items():
        rows.add(
            f"{name}: throughput of the server, over that of {case.offline}",
            lambda name=name, case=case: rows.ms(name, case.offline) / rows.ms(name, "serve"),
            at_least=0.97,
        )
    for until, what in (("health", "/health is 200"), ("token", "the first token of a completion")):
        rows.add(
            f"start of the server until {what}",
            lambda until=until: rows.ms("start", f"serve, {until}") / 1e3,
            at_most=2.0,
            unit=" s",
        )
    rows.add(
        "start of the server until the first token, over that of generate",
        lambda: rows.ms("start", "serve, token") / rows.ms("start", "generate"),
        at_most=1.1,
    )
    return rows.rows


def print_times(found, cases):
    print("\n| case | contender | median | tokens/s | spread |")
    print("| --- | --- | ---: | ---: | ---: |")
    for name, contenders in found.items():
        for contender, seen in contenders.items():
            rate = f"{cases[name].tokens() / seen['median_ms'] * 1e3:.1f}" if name in cases else ""
            print(
                f"| {name} | {contender} | {seen['median_ms']:.4g} ms | {rate} "
                f"| {seen['spread'] * 100:.0f} % |"
            )


def print_latencies(loads):
    """Each number is the median over the counted loads of what bench-serve says of one."""
    print("\n| case | of the server, ms | " + " | ".join(STATISTICS) + " |")
    print("| --- | --- " + "| ---: " * len(STATISTICS) + "|")
    for name, seen in loads.items():
        for key, title in LATENCIES.items():
            medians = [statistics.median(load[key][each] for load in seen) for each in STATISTICS]
            print(f"| {name} | {title} | " + " | ".join(f"{ms:.4g}" for ms in medians) + " |")


def chosen_cases(options):
    """The cases of throughput. That of a program which is not built is left out."""
    all_cases = SMOKE_CASES if options.smoke else CASES
    cases = {name: case for name, case in all_cases.items() if options.only in name}
    if not commands.our_program("inference_bench").exists():
        print("!! inference_bench is not beside megatron: its case is left out", file=sys.stderr)
        cases = {name: case for name, case in cases.items() if case.offline != "engine"}
    return cases


def measure_all(options, work):
    sizes = model.SMALL if options.smoke else model.SIZES
    cases = chosen_cases(options)
    folder = (options.model or work / "model").absolute()
    run.prepare(folder, sizes, pythons={})
    loads = {name: [] for name in cases}
    runs = {
        name: throughput_runs(name, case, folder, sizes, work, loads[name])
        for name, case in cases.items()
    }
    if options.only in "start":
        runs["start"] = start_runs(folder, sizes, work)
        for each in runs["start"].values():
            each.turn()  # fills the page cache
    rounds = 1 if options.smoke else options.rounds
    progress = measure.Progress([each for one in runs.values() for each in one.values()] * rounds)
    found = {}
    for name, each in runs.items():
        found[name] = measure.measure(each, rounds, progress)
        run.check_losses(name, found[name])
    rows = wanted_figures(found, cases)
    print_times(found, cases)
    if loads:
        print_latencies(loads)
    figures.print_table(rows)
    return {
        "machine": machine.describe(),
        "model": sizes,
        "definitions": {name: asdict(case) for name, case in cases.items()},
        "cases": found,
        "loads": loads,
        "figures": rows,
    }


def main():
    parser = argparse.ArgumentParser(
        prog="bench/run.sh serving",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", default="", help="a part of a case's name: together, start")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each contender")
    parser.add_argument("--model", type=Path, help="a folder that keeps the model (1 GB)")
    parser.add_argument(
        "--output", type=Path, help="default: bench/results/serving.json; none with --smoke"
    )
    parser.add_argument("--list", action="store_true", help="prints the cases")
    parser.add_argument("--smoke", action="store_true", help="tiny sizes: tests this program")
    options = parser.parse_args()
    names = [name for name in [*CASES, "start"] if options.only in name]
    if options.list or not names:
        print("\n".join(names) or "no case has such a name: see --list")
        sys.exit(0 if options.list else 2)
    os.environ.setdefault("OMP_NUM_THREADS", str(machine.cores()))
    with tempfile.TemporaryDirectory() as temporary:
        result = measure_all(options, Path(temporary))
    default = None if options.smoke else inputs.ROOT / "bench/results/serving.json"
    if output := options.output or default:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
