"""The bench suite: one training step of ours against PyTorch's, in one run.

All contenders have the same shapes and start from the same weights and tokens.

Examples:
  bench/run.sh                        all shapes in bf16, one also in fp32
  bench/run.sh --full                 all in both
  bench/run.sh --quick                fewer steps and shapes
  bench/run.sh --only gpt2_4x256      one case in both; --full --list names all"""
import argparse
import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import cases
import commands
import curves
import inputs
import limits
import llmc
import machine
import measure
import smoke
import tables
import targets
import turns


def wanted_cases(options):
    """(case, dtype) pairs of this run, in order."""
    pool = (
        cases.SMOKE_CASES
        if options.smoke
        else cases.CUDA_CASES
        if options.device == "cuda"
        else cases.CASES
    )
    pairs = [
        (case, dtype) for case in pool for dtype in cases.DTYPES if options.dtype in (None, dtype)
    ]
    if options.smoke:
        pairs = [(case, cases.DTYPES[i % 2]) for i, case in enumerate(pool)]
    if not (
        options.full or options.only or options.smoke
    ):  # fp32 steps only where a target asks for them
        pairs = [
            (case, dtype)
            for case, dtype in pairs
            if not case.full and (dtype == "bf16" or case.kind != "step" or case == cases.GPT2_STEP)
        ]
    if options.quick and not options.only:
        pairs = [(case, dtype) for case, dtype in pairs if case.quick]
    return [
        (case, dtype)
        for case, dtype in pairs
        if not options.only or any(word in f"{case.name}-{dtype}" for word in options.only)
    ]


def contenders_of(case, options):
    names = commands.contenders_of(case)
    if options.smoke:
        names = [name for name in names if name != "compiled"]  # compiling takes a minute
    return (
        names
        if options.peers is None
        else [name for name in names if name == "megatron" or name.split(",")[0] in options.peers]
    )


def turn_functions(case, dtype, options, work, details):
    """Returns {contender: function that runs one turn} of a case.
    Limits leave what else they found in `details`."""
    steps, warm, what = options.steps + options.warm, options.warm, f"{case.name} {dtype}"
    if case.kind == "start":
        return {
            name: partial(
                turns.start_seconds,
                commands.turn_of(name, case, dtype, work, 1),
                f"{name}, {what}",
                work,
            )
            for name in contenders_of(case, options)
        }
    if case.kind == "attention":  # its programs print one median
        started, steps, warm = (
            {
                name: commands.turn_of(name, case, dtype, work, options.steps)
                for name in contenders_of(case, options)
            },
            1,
            0,
        )
    else:
        started = {
            name: commands.turn_of(name, case, dtype, work, steps)
            for name in contenders_of(case, options)
        }
        started[limits.TORCH] = commands.gemm_turn(case, dtype, steps)
    if options.llmc and options.llmc[0] == case and dtype == "fp32":
        started[llmc.NAME] = options.llmc[1]
    functions = {
        name: partial(turns.watch, turn, steps, warm, f"{name}, {what}", work)
        for name, turn in started.items()
    }
    return functions | limits.runs(case, dtype, details, work)


def runs_of(case, dtype, options, work, details):
    return {
        name: measure.Run(name, turn, f"{case.name} {dtype}")
        for name, turn in turn_functions(case, dtype, options, work, details).items()
    }


def measure_case(case, dtype, runs, options, progress, details):
    rows = measure.measure(runs, options.rounds, progress)
    differences, complaints = curves.check(rows, dtype)
    bounds = [row["median_ms"] for name, row in rows.items() if name in limits.NAMES]
    entry = {
        "name": case.name,
        "kind": case.kind,
        "title": case.title(),
        "dtype": dtype,
        "tokens": case.tokens(),
        "parameters": case.parameters(),
        "gflop_of_gemms": limits.gflop(case),
        "gemm_bound_ms": min(bounds, default=None),
        "memory_floor_ms": limits.memory_floor_ms(case, dtype, details),
        "contenders": rows,
        "loss_difference": differences,
        "loss_curves_equal": not complaints,
        "limits": details,
    }
    print("\n".join(tables.case_lines(entry)), flush=True)
    for complaint in complaints:
        print(f"  LOSS CURVES DIFFER: {complaint}", file=sys.stderr, flush=True)
    return entry


def parse_options(arguments):
    parser = argparse.ArgumentParser(
        prog="bench/run.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--quick", action="store_true", help="two rounds of few steps on two shapes"
    )
    parser.add_argument("--full", action="store_true", help="every shape also in fp32")
    parser.add_argument(
        "--smoke", action="store_true", help="tiny models: tests the suite, measures nothing"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and end")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="only cases whose NAME-DTYPE contains this; repeated: or this",
    )
    parser.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        help="some of eager,compiled,transformers,grouped_mm",
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=cases.DTYPES)
    parser.add_argument("--rounds", type=int, help="how often the contenders take turns (2)")
    parser.add_argument("--steps", type=int, help="counted steps per turn (5; on a GPU 20)")
    parser.add_argument(
        "--llmc",
        type=Path,
        help="llm.c's train_gpt2, a contender in fp32 where its batch and sequence are a case's",
    )
    parser.add_argument(
        "--output", type=Path, help="default: bench/results/suite.json; none with --smoke"
    )
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.smoke else 2)
    options.steps = options.steps or (
        20 if options.device == "cuda" else 2 if options.quick or options.smoke else 5
    )
    options.warm = 5 if options.device == "cuda" else 1
    name = "suite_cuda" if options.device == "cuda" else "suite_quick" if options.quick else "suite"
    options.output = options.output or (
        None if options.smoke else inputs.ROOT / f"bench/results/{name}.json"
    )
    return options


def main():
    options = parse_options(sys.argv[1:])
    pairs = wanted_cases(options)
    if options.list or not pairs:
        print(
            "\n".join(f"{case.name}-{dtype}".ljust(24) + case.title() for case, dtype in pairs)
            or "no case has such a name: see --list"
        )
        sys.exit(0 if options.list else 2)
    for name in {commands.missing_program(case) for case, _ in pairs} - {None}:
        print(f"!! {name} is not beside megatron: its cases are left out", file=sys.stderr)
    pairs = [(case, dtype) for case, dtype in pairs if not commands.missing_program(case)]
    os.environ.setdefault("OMP_NUM_THREADS", "1" if options.smoke else str(machine.cores()))
    options.llmc = (
        llmc.turn_for(options.llmc, [case for case, _ in pairs]) if options.llmc else None
    )
    settings = {"rounds": options.rounds, "steps": options.steps, "warm": options.warm}
    result = {
        "machine": machine.describe(options.device),
        "settings": settings,
        "cases": [],
        "targets": [],
    }
    with tempfile.TemporaryDirectory() as folder:
        measure_all(pairs, options, Path(folder), result)
        if options.smoke and not smoke.notices_another_learning_rate(
            result, Path(folder), options.steps + options.warm
        ):
            sys.exit(
                "A run with another learning rate passed as equal: "
                "the comparison of losses is blind."
            )
    print("\n".join(targets.lines(result)))
    equal = all(entry["loss_curves_equal"] for entry in result["cases"])
    sys.exit(0 if equal else "Loss curves differ: the times above compare different computations.")


def program_bytes(work):
    """Resident memory of the programs themselves: with a model that needs none."""
    case, steps = cases.SMOKE_CASES[0], 60  # enough to be seen before it ends
    inputs.make_inputs(work, case, steps)
    return {
        name: turns.watch(commands.turn_of(name, case, "fp32", work, steps), steps, 1, name, work)[
            "peak_bytes"
        ]
        for name in ("megatron", "eager")
    }


def measure_all(pairs, options, work, result):
    """Measures every case into `result`, which is written after each."""
    result["program_bytes"] = (
        program_bytes(work) if options.device == "cpu" and not options.smoke else {}
    )
    details = {pair: {} for pair in pairs}
    all_runs = {pair: runs_of(*pair, options, work, details[pair]) for pair in pairs}
    progress = measure.Progress(
        run for runs in all_runs.values() for run in runs.values() for _ in range(options.rounds)
    )
    for pair, runs in all_runs.items():
        inputs.make_inputs(work, pair[0], options.steps + options.warm)
        result["cases"].append(measure_case(*pair, runs, options, progress, details[pair]))
        result["targets"] = targets.of(result)
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
