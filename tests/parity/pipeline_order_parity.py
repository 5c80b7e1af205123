"""Compares the order of steps of 1f1b, interleaved and combined-1f1b with megatron-core's.

The reference is the order in which megatron-core's own functions run them, for every rank.

Where megatron-core refuses a number of microbatches (a last group shorter than the pipeline), the
program must still have a schedule.
environment: MEGATRON
"""
import json
import random
import sys

import mcore_cpu

mcore_cpu.init()
import mcore_order
from program import run
from report import Report

CASES, SEED = 60, 20250


def ours(name, ranks, chunks, microbatches, group):
    flags = [
        "--pipeline-schedule",
        name,
        "--pipeline-model-parallel-size",
        ranks,
        "--num-microbatches",
        microbatches,
    ]
    flags += (
        [
            "--num-virtual-stages-per-pipeline-rank",
            chunks,
            "--microbatch-group-size-per-virtual-pipeline-stage",
            group,
        ]
        if chunks > 1
        else []
    )
    plan = json.loads(run("plan", "--show-schedule", "--json", *flags).stdout)
    tables = []
    for rank in plan["ranks"]:
        computing = [step for step in rank["steps"] if step["kind"] in ("F", "BW")]
        tables.append(
            [
                (
                    step["kind"] + "+" * step.get("joins_next", False),
                    step["microbatch"],
                    step["chunk"],
                )
                for step in computing
            ]
        )
    return tables


def theirs(ranks, chunks, microbatches, group, combined=False):
    return [
        mcore_order.steps(ranks, chunks, microbatches, rank, group, combined=combined)
        for rank in range(ranks)
    ]


def random_cases(chance):
    for _ in range(CASES):
        ranks, chunks = chance.randint(2, 8), chance.randint(2, 4)
        microbatches = chance.randint(ranks, 5 * ranks)
        yield ranks, chunks, microbatches, chance.randint(ranks, microbatches)


def main():
    report, chance = Report(), random.Random(SEED)
    with report.guard("1f1b"):
        cases = [
            (ranks, microbatches) for ranks in (2, 3, 5, 8) for microbatches in (1, 2, 5, 8, 13)
        ]
        wrong = [
            case
            for case in cases
            if ours("1f1b", case[0], 1, case[1], 0) != theirs(case[0], 1, case[1], None)
        ]
        report.result(
            "pipeline: order of 1f1b", not wrong, f"{len(cases)} pipelines, wrong: {wrong[:3]}"
        )
    for name in ("interleaved", "combined-1f1b"):
        with report.guard(name):
            wrong, num_same, num_refused = [], 0, 0
            for case in random_cases(chance):
                table = ours(name, *case)
                try:
                    expected = theirs(*case, combined=name == "combined-1f1b")
                except RuntimeError as error:
                    assert "The remainder of M" in str(error), error
                    num_refused += 1
                    continue
                num_same += 1
                wrong += [case] if table != expected else []
            report.result(
                f"pipeline: order of {name}",
                num_same > 0 and not wrong,
                f"{num_same} pipelines, and {num_refused} that megatron-core refuses, "
                f"wrong: {wrong[:3]}",
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
