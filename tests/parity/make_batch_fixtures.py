"""Writes tests/config/fixtures/batch_schedules.json.

The numbers come from megatron-core's real microbatch calculators.

    python tests/parity/make_batch_fixtures.py RAMP.py STEPS.py

RAMP.py is megatron/core/num_microbatches_calculator.py of megatron-core 0.15.0 (the last line of
releases with the ramp), STEPS.py the same file of 0.18 or later (with the step schedule). Every
case lists the flags and, for chosen numbers of consumed samples, the global batch size, the running
batch size and the number of microbatches; then the iterations that Megatron-LM's update_train_iters
derives from numbers of samples, walked here step by step with the real calculator.
"""
import importlib.util
import json
import logging
import os
import random
import sys
from pathlib import Path

OUTPUT = Path(__file__).resolve().parents[1] / "config/fixtures/batch_schedules.json"
logging.disable(logging.CRITICAL)


def module_of(path):
    spec = importlib.util.spec_from_file_location("calculator_" + Path(path).parent.name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def ramp_cases():
    rng = random.Random(4)
    yield dict(micro=2, dp=1, size=4)
    yield dict(micro=2, dp=3, size=32, decrease=True)
    for start, increment, samples, size in (
        (16, 8, 300000, 1536),
        (2, 2, 16, 8),
        (4, 4, 7, 16),
        (1, 1, 1, 64),
        (8, 8, 100, 8 * 8),
    ):
        yield dict(micro=1, dp=1, size=size, ramp=[start, increment, samples])
    for _ in range(40):
        micro, dp = rng.choice((1, 2, 3, 4)), rng.choice((1, 2, 5))
        unit = micro * dp
        start, increment = unit * rng.randint(1, 4), unit * rng.randint(1, 6)
        yield dict(
            micro=micro,
            dp=dp,
            size=start + increment * rng.randint(1, 30),
            ramp=[start, increment, rng.randint(1, 10 ** rng.randint(1, 7))],
        )
    for _ in range(15):
        micro, dp = rng.choice((2, 3)), rng.choice((1, 2))
        start, increment = micro * dp + rng.randint(0, 9), rng.randint(1, 7)
        yield dict(
            micro=micro,
            dp=dp,
            size=start + increment * rng.randint(1, 20),
            ramp=[start, increment, rng.randint(1, 5000)],
            decrease=True,
        )


def step_cases():
    rng = random.Random(5)
    yield dict(micro=2, dp=1, seq=8, steps="0:4 1K:8,2.5K:16  1M:32")
    yield dict(micro=1, dp=1, seq=2048, steps="0:768 250B:1536 500B:3072 750B:6144")
    yield dict(micro=1, dp=1, seq=100, steps="0:1 1.5t:1k")
    for _ in range(20):
        micro, dp, seq = rng.choice((1, 2)), rng.choice((1, 4)), rng.choice((1, 7, 4096))
        sizes = sorted(micro * dp * rng.randint(1, 50) for _ in range(rng.randint(1, 6)))
        marks = sorted(rng.sample(range(1, 400), len(sizes) - 1))
        entries = [f"0:{sizes[0]}"] + [
            f"{mark * seq / 10:.10g}K:{size}" for mark, size in zip(marks, sizes[1:])
        ]
        yield dict(micro=micro, dp=dp, seq=seq, steps=" ".join(entries))


def points_of(case, bounds):
    rng = random.Random(json.dumps(case))
    points = {0, 1, 2, 10**12}
    for bound in bounds:
        points |= {max(0, bound + d) for d in (-2, -1, 0, 1, 2)}
    points |= {rng.randrange(0, 2 * (max(bounds) if bounds else 100) + 10) for _ in range(30)}
    return sorted(points)


def sample(calculator, case, bounds):
    points = []
    for consumed in points_of(case, bounds):
        calculator.update(consumed, consistency_check=False)
        points.append(
            [
                consumed,
                calculator.get_current_global_batch_size(),
                calculator.get_current_running_global_batch_size(),
                calculator.get(),
            ]
        )
    return points


def ramp_iterations(calculator, case, samples):
    iterations = consumed = 0
    if "ramp" in case:
        while consumed <= case["ramp"][2] and consumed <= samples:
            calculator.update(consumed, consistency_check=False)
            consumed += calculator.get_current_global_batch_size()
            iterations += 1
    return iterations + max(0, samples - consumed) // case["size"]


def step_iterations(calculator, samples):
    iterations = consumed = 0
    while consumed < samples:
        calculator.update(consumed, consistency_check=False)
        consumed += calculator.get_current_global_batch_size()
        iterations += 1
    return iterations


def evaluate_ramp(module, case):
    calculator = module._build_num_microbatches_calculator(
        1, case.get("ramp"), case["size"], case["micro"], case["dp"], case.get("decrease", False)
    )
    bounds = []
    if "ramp" in case:
        start, increment, samples = case["ramp"]
        count = (case["size"] - start) // increment
        bounds = sorted({int(samples * k / count) for k in range(1, count + 1)} | {samples})[-40:]
    totals = {case["size"], 3 * case["size"] + 1} | {
        bound + extra for bound in bounds[-3:] for extra in (0, 1, 5 * case["size"])
    }
    iterations = [[total, ramp_iterations(calculator, case, total)] for total in sorted(totals)]
    return dict(case, points=sample(calculator, case, bounds), iterations=iterations)


def evaluate_steps(module, case):
    calculator = module.StepBatchsizeNumMicroBatchesCalculator(
        case["micro"], case["dp"], False, 1, case["steps"], case["seq"]
    )
    bounds = [first for first, _ in calculator.schedule if first > 0]
    small = [bound for bound in bounds if bound < 10**6] or [100]
    iterations = [
        [total, step_iterations(calculator, total)]
        for total in sorted({1, 1000, *small, *(bound + 1 for bound in small)})
    ]
    return dict(case, points=sample(calculator, case, bounds), iterations=iterations)


def main():
    ramp, steps = module_of(sys.argv[1]), module_of(sys.argv[2])
    cases = [evaluate_ramp(ramp, case) for case in ramp_cases()] + [
        evaluate_steps(steps, case) for case in step_cases()
    ]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(
        '{"source": "megatron-core 0.15.0 and 0.19.1 num_microbatches_calculator", "cases": [\n'
        + lines
        + "\n]}\n"
    )
    print(f"wrote {os.path.relpath(OUTPUT)}: {sum(len(case['points']) for case in cases)} points")


if __name__ == "__main__":
    main()
