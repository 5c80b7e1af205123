"""Writes fixtures/reruns.jsonl: how megatron-core's RerunStateMachine handles given results.

Run it in the Python environment of tests/parity.
"""

import json
import logging
import math
import os
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "parity"))
import mcore_cpu  # noqa: E402  megatron-core without a CUDA device

mcore_cpu.init()

from megatron.core import rerun_state_machine as rsm  # noqa: E402

NODE = ["a"]
REAL_TENSOR = torch.tensor


def cpu_tensor(*args, **kwargs):
    kwargs.pop("device", None)
    return REAL_TENSOR(*args, **kwargs)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def text(value):
    return value if math.isfinite(value) else str(value)


class Number(torch.Tensor):
    """Prints as a bare number, as the C++ machine does."""

    @staticmethod
    def of(value):
        return REAL_TENSOR(value, dtype=torch.float64).as_subclass(Number)

    def __format__(self, spec):
        return (
            repr(self.item()).removesuffix(".0") if math.isfinite(self.item()) else str(self.item())
        )

    __repr__ = lambda self: format(self)


def machine(mode):
    names = {
        "validate_results": rsm.RerunMode.VALIDATE_RESULTS,
        "report_stats": rsm.RerunMode.REPORT_DETERMINISM_STATS,
    }
    made = rsm.RerunStateMachine(mode=names[mode])
    made._save_state = lambda: None
    made._restore_state = lambda: None
    made._get_validation_call_info = partial(call_info, made)
    return made


def call_info(made, message):
    caller = rsm.Caller(message=message, rank=0)
    made.validation_counts[caller] += 1
    return rsm.Call(caller=caller, sequence=made.validation_counts[caller])


def run_step(made, iteration, runs):
    made.current_iteration = (
        iteration if made.state == rsm.RerunState.WILL_RERUN_FROM_CHECKPOINT else iteration - 1
    )
    number = 0
    while made.should_run_forward_backward(None):
        for value in runs[min(number, len(runs) - 1)]:
            result = Number.of(value)
            made.validate_result(result, torch.isnan, "found NaN", tolerance=0.0, fatal=True)
            large = partial(made.is_unexpectedly_large, threshold=10, context="loss")
            made.validate_result(result, large, "Spiky loss", tolerance=0.0, fatal=False)
        number += 1
    return made.should_checkpoint_and_exit()


def resumed(old, mode):
    new = machine(mode)
    if old.state != rsm.RerunState.NOT_RUNNING_YET:
        state = old.state_dict(None, "torch_dist", force=True)
        state["sharded"] = state["sharded"].data
        new.load_state_dict(state)
    return new


def scenario(name, steps, mode="validate_results"):
    handler = Lines()
    rsm.logger.handlers = [handler]
    rsm.logger.setLevel(logging.DEBUG)
    rsm.logger.propagate = False
    NODE[0] = steps[0][0]
    made, out = machine(mode), []
    for node, iteration, runs in steps:
        if node != NODE[0]:
            NODE[0] = node
            made = resumed(made, mode)
        save, leave, code = run_step(made, iteration, runs)
        out.append(
            dict(
                node=node,
                iteration=iteration,
                runs=[[text(v) for v in run] for run in runs],
                save=save,
                exit=leave,
                exit_code=code,
            )
        )
    quiet = ("RerunStateMachine initialized", "Result validation enabled")
    return dict(
        name=name,
        mode=mode,
        steps=out,
        log=[line for line in handler.lines if not line.startswith(quiet)],
    )


def main():
    nan, good = math.nan, [[1.5, 2.5]]
    warm = [("a", i, [[1.0 + i / 256]]) for i in range(1, 102)]
    scenarios = [
        scenario("healthy", [("a", i, good) for i in (1, 2, 3)]),
        scenario("the first step is not validated", [("a", 1, [[nan]])]),
        scenario("transient", [("a", 1, good), ("a", 2, [[1.5, nan], [1.5, 2.5]])]),
        scenario(
            "correct after all", [("a", 1, good), ("a", 2, [[1.5, nan]]), ("b", 2, [[1.5, nan]])]
        ),
        scenario("persistent", [("a", 1, good), ("a", 2, [[nan, 2.5]]), ("b", 2, [[1.5, 2.5]])]),
        scenario(
            "a spike that is correct is not fatal",
            warm + [("a", 102, [[100.0]]), ("b", 102, [[100.0]]), ("b", 103, [[100.5]])],
        ),
        scenario("a spike below ten times the largest", warm + [("a", 102, [[10.0]])]),
    ]
    path = Path(__file__).parent / "fixtures" / "reruns.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(s) + "\n" for s in scenarios))


if __name__ == "__main__":
    uname = lambda: (os.sys.platform, NODE[0])
    with mock.patch.object(rsm.os, "uname", uname), mock.patch(
        "torch.cuda.current_device", lambda: 0
    ), mock.patch("torch.tensor", cpu_tensor), mock.patch(
        "torch.distributed.all_reduce", lambda t: None
    ), mock.patch(
        "torch.distributed.get_world_size", lambda: 1
    ), mock.patch(
        "torch.distributed.get_rank", lambda: 0
    ):
        sys.exit(main())
