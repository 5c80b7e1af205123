"""Writes tests/optimizer/fixtures/lr_schedules.json.

The numbers come from megatron-core's real OptimizerParamScheduler.

Run with the parity environment's Python: `python tests/parity/make_lr_fixtures.py`.
Every case lists the scheduler's settings and, for chosen step counts, the learning rate and weight
decay it gives.
"""
import json
import os
import random
import sys
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(__file__).resolve().parent))
import mcore_cpu

mcore_cpu.init()
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

OUTPUT = Path(__file__).resolve().parents[1] / "optimizer/fixtures/lr_schedules.json"
BASE = dict(
    init_lr=0.0,
    max_lr=6e-4,
    min_lr=6e-5,
    lr_warmup_steps=0,
    lr_decay_steps=100,
    lr_decay_style="linear",
    wsd_decay_steps=None,
    lr_wsd_decay_style="exponential",
    start_wd=0.1,
    end_wd=0.1,
    wd_incr_steps=120,
    wd_incr_style="constant",
)
WARM_UPS = (dict(), dict(lr_warmup_steps=13, init_lr=1e-5))
STYLES = ("constant", "linear", "cosine", "inverse-square-root")
WSD_STYLES = ("exponential", "linear", "cosine", "minus_sqrt")


def cases():
    for warm_up in WARM_UPS:
        for style in STYLES:
            yield dict(BASE, lr_decay_style=style, **warm_up)
        for style in WSD_STYLES:
            yield dict(
                BASE, lr_decay_style="WSD", wsd_decay_steps=30, lr_wsd_decay_style=style, **warm_up
            )
    # Steps are counted in samples (global batch 32), as Megatron-LM does: iterations × global batch
    # size.
    yield dict(
        BASE,
        lr_decay_style="cosine",
        lr_warmup_steps=10 * 32,
        lr_decay_steps=90 * 32,
        wd_incr_steps=100 * 32,
        min_lr=0.0,
    )
    # A fractional warm-up, as --lr-warmup-fraction yields.
    yield dict(BASE, lr_decay_style="cosine", lr_warmup_steps=0.07 * 100)
    for style in ("linear", "cosine"):
        yield dict(BASE, start_wd=0.033, end_wd=0.33, wd_incr_style=style, wd_incr_steps=60)
    yield from edge_cases()
    yield from drawn_cases()


def edge_cases():
    for style in STYLES:
        yield dict(
            BASE, lr_decay_style=style, lr_warmup_steps=99, init_lr=6e-4
        )  # the decay is one step long
        yield dict(BASE, lr_decay_style=style, min_lr=6e-4)  # no decay at all
        yield dict(BASE, lr_decay_style=style, lr_decay_steps=1, wd_incr_steps=1)
    for style in WSD_STYLES:
        for anneal in (0, 1, 87, 100):  # none, one step, all after the warm-up, more than that
            yield dict(
                BASE,
                lr_decay_style="WSD",
                wsd_decay_steps=anneal,
                lr_wsd_decay_style=style,
                lr_warmup_steps=13,
            )


def drawn_cases():
    """Draws schedules in samples, as --train-samples yields them.
    They go up to lengths where rounding could show."""
    rng = random.Random(7)
    for _ in range(60):
        decay = rng.randint(10, 10 ** rng.randint(2, 11))
        peak = 10 ** rng.uniform(-6, 0)
        weights = sorted(rng.uniform(0, 0.5) for _ in range(2))
        grows = rng.choice(("constant", "linear", "cosine"))
        yield dict(
            init_lr=peak * rng.random(),
            max_lr=peak,
            min_lr=peak * rng.choice((0, 0.1, rng.random())),
            lr_warmup_steps=rng.choice((0, rng.randrange(decay), rng.random() * 0.5 * decay)),
            lr_decay_steps=decay,
            lr_decay_style=rng.choice(STYLES + ("WSD",)),
            wsd_decay_steps=rng.randint(1, decay),
            lr_wsd_decay_style=rng.choice(WSD_STYLES),
            start_wd=weights[1 if grows == "constant" else 0],
            end_wd=weights[1],
            wd_incr_steps=rng.randint(decay // 2, 2 * decay),
            wd_incr_style=grows,
        )


def steps_of(case):
    decay, warm_up, weight = (
        case["lr_decay_steps"],
        int(case["lr_warmup_steps"]),
        case["wd_incr_steps"],
    )
    marks = {
        0,
        1,
        2,
        3,
        decay,
        decay + 1,
        decay + 50,
        weight,
        weight + 1,
        warm_up,
        warm_up + 1,
        max(warm_up - 1, 0),
    }
    marks |= {decay * part // 20 for part in range(1, 20)}
    if case["wsd_decay_steps"]:
        start = decay - case["wsd_decay_steps"]
        marks |= {start - 1, start, start + 1, decay - 1}
    return sorted(marks)


def evaluate(case):
    group = {}
    scheduler = OptimizerParamScheduler(optimizer=SimpleNamespace(param_groups=[group]), **case)
    points = []
    for step in steps_of(case):
        scheduler.step(step - scheduler.num_steps)
        points.append({"step": step, "lr": group["lr"], "weight_decay": group["weight_decay"]})
    return {"settings": case, "points": points}


def main():
    lines = ",\n".join(json.dumps(evaluate(case)) for case in cases())
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(
        '{"source": "megatron-core 0.15.0 OptimizerParamScheduler", "cases": [\n' + lines + "\n]}\n"
    )
    print(f"wrote {os.path.relpath(OUTPUT)}")


if __name__ == "__main__":
    main()
