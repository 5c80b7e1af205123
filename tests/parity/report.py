"""Prints one line per parity check (`ok` or `FAIL`, name, measured error).

It also keeps the exit code; run.sh counts those lines."""
import sys
import traceback
from contextlib import contextmanager

import numpy as np

TOLERANCE = 1e-5  # the contract: relative error of fp32 values, max|a − b| / max|b| per tensor


def relative_error(ours, theirs):
    """Returns max|ours − theirs| / max|theirs| in float64.
    The result is infinite when shapes differ or a value is not finite."""
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if ours.shape != theirs.shape or not np.isfinite(ours).all():
        return float("inf")
    if ours.size == 0:
        return 0.0
    scale = np.abs(theirs).max()
    return float(np.abs(ours - theirs).max() / (scale if scale > 0 else 1.0))


class Report:
    """Collects checks; `finish()` gives the exit code."""

    def __init__(self):
        self.failures_ = 0

    def result(self, name, passed, detail=""):
        self.failures_ += not passed
        print(f"{'ok  ' if passed else 'FAIL'} {name}{': ' if detail else ''}{detail}", flush=True)

    def close(self, name, ours, theirs, tolerance=TOLERANCE):
        error = relative_error(ours, theirs)
        self.result(name, error <= tolerance, f"max relative error {error:.2e}")

    def close_tensors(self, name, ours, theirs, tolerance=TOLERANCE):
        """Compares two dictionaries of tensors; both must have the same names.
        Shows the worst tensor."""
        missing, extra = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
        if missing or extra:
            return self.result(name, False, f"missing {missing}, unexpected {extra}")
        errors = {key: relative_error(ours[key], theirs[key]) for key in theirs}
        worst = max(errors, key=errors.get)
        passed = errors[worst] <= tolerance
        self.result(
            name,
            passed,
            f"max relative error {errors[worst]:.2e} of {len(errors)} tensors ({worst})",
        )
        if not passed:
            for key in sorted(
                (key for key in errors if errors[key] > tolerance), key=errors.get, reverse=True
            )[:20]:
                print(f"     {key}: {errors[key]:.2e} (shape {tuple(np.shape(theirs[key]))})")

    @contextmanager
    def guard(self, name):
        """An exception inside becomes a failed check of that name."""
        try:
            yield
        except Exception as error:  # every kind: a harness that stops would hide the other checks
            self.result(name, False, f"{type(error).__name__}: {error}".splitlines()[0])
            traceback.print_exc(file=sys.stdout)

    def finish(self):
        return 1 if self.failures_ else 0
