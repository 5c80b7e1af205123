"""Compares whole runs with megatron-core's schedules.

It compares consumed samples, batch size and learning rate of every iteration.

A case is a set of flags. The expected values come from the real
RampupBatchsizeNumMicroBatchesCalculator and OptimizerParamScheduler, called in the order in which
Megatron-LM's loop calls them.    environment: MEGATRON
"""
import json
import re
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import mcore_cpu

mcore_cpu.init()
from megatron.core.num_microbatches_calculator import _build_num_microbatches_calculator
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

from program import run
from report import Report

MODEL = [
    "--num-layers",
    1,
    "--hidden-size",
    16,
    "--num-attention-heads",
    2,
    "--seq-length",
    8,
    "--mock-data",
    "--tokenizer-type",
    "NullTokenizer",
    "--vocab-size",
    32,
    "--micro-batch-size",
    2,
    "--log-interval",
    1,
    "--num-workers",
    0,
]
WSD = ("exponential", "linear", "cosine", "minus_sqrt")


def cases():
    ramp = dict(size=16, ramp=[2, 2, 60], samples=160)
    for style in ("constant", "linear", "cosine", "inverse-square-root"):
        yield f"ramp, {style}", dict(ramp, lr_decay_style=style, warm_up=10, min_lr=1e-4)
    for style in WSD:
        yield f"ramp, WSD {style}", dict(
            ramp, lr_decay_style="WSD", wsd=50, lr_wsd_decay_style=style, warm_up=10
        )
    yield "ramp that cuts its batches", dict(
        size=15, ramp=[3, 3, 40], samples=120, decrease=True, lr_decay_style="cosine", warm_up=7
    )
    yield "constant batch in samples", dict(
        size=6, samples=64, lr_decay_style="cosine", decay=50, min_lr=1e-4
    )
    yield "warm-up as a fraction", dict(size=4, samples=60, lr_decay_style="linear", fraction=0.13)


def flags(case):
    words = [
        "--global-batch-size",
        case["size"],
        "--train-samples",
        case["samples"],
        "--lr",
        1e-2,
        "--lr-decay-style",
        case["lr_decay_style"],
    ]
    for key, flag in (
        ("warm_up", "--lr-warmup-samples"),
        ("min_lr", "--min-lr"),
        ("wsd", "--lr-wsd-decay-samples"),
        ("decay", "--lr-decay-samples"),
        ("lr_wsd_decay_style", "--lr-wsd-decay-style"),
        ("fraction", "--lr-warmup-fraction"),
    ):
        words += [flag, case[key]] if key in case else []
    words += ["--rampup-batch-size", *case["ramp"]] if "ramp" in case else []
    return words + (["--decrease-batch-size-if-needed"] if case.get("decrease") else [])


def expected(case, iterations):
    calculator = _build_num_microbatches_calculator(
        1, case.get("ramp"), case["size"], 2, 1, case.get("decrease", False)
    )
    decay, group = case.get("decay", case["samples"]), {}
    scheduler = OptimizerParamScheduler(
        optimizer=SimpleNamespace(param_groups=[group]),
        init_lr=0.0,
        max_lr=1e-2,
        min_lr=case.get("min_lr", 0.0),
        lr_warmup_steps=case["fraction"] * decay if "fraction" in case else case.get("warm_up", 0),
        lr_decay_steps=decay,
        lr_decay_style=case["lr_decay_style"],
        start_wd=0.01,
        end_wd=0.01,
        wd_incr_steps=case["samples"],
        wd_incr_style="constant",
        wsd_decay_steps=case.get("wsd"),
        lr_wsd_decay_style=case.get("lr_wsd_decay_style", "exponential"),
    )
    consumed, rows = 0, []
    for _ in range(iterations):
        calculator.update(consumed, consistency_check=not case.get("decrease", False))
        batch = 2 * calculator.get()
        scheduler.step(increment=batch)
        consumed += batch
        rows.append((consumed, batch, group["lr"]))
    return rows


def iterations_of(case):
    """Megatron-LM's update_train_iters."""
    calculator = _build_num_microbatches_calculator(
        1, case.get("ramp"), case["size"], 2, 1, case.get("decrease", False)
    )
    iterations = consumed = 0
    while "ramp" in case and consumed <= min(case["ramp"][2], case["samples"]):
        calculator.update(consumed, consistency_check=False)
        consumed += calculator.get_current_global_batch_size()
        iterations += 1
    return iterations + max(0, case["samples"] - consumed) // case["size"]


def measured(case, folder):
    output = run("pretrain", "gpt", *MODEL, *flags(case), "--tensorboard-dir", folder).stdout
    sizes = [int(size) for size in re.findall(r"\| global batch size: +(\d+)", output)]
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    lines = [line for line in lines if "learning_rate" in line]  # the record of the start has none
    return [
        (line["consumed_train_samples"], size, line["learning_rate"])
        for line, size in zip(lines, sizes, strict=True)
    ]


def main():
    report = Report()
    for name, case in cases():
        with report.guard(name), tempfile.TemporaryDirectory() as folder:
            ours, theirs = measured(case, folder), expected(case, iterations_of(case))
            report.result(
                f"schedule: {name}: samples and batch sizes",
                [row[:2] for row in ours] == [row[:2] for row in theirs],
                f"{len(theirs)} iterations",
            )
            report.close(
                f"schedule: {name}: learning rates",
                [row[2] for row in ours],
                [row[2] for row in theirs],
                tolerance=1e-14,
            )
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
