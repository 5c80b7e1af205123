"""The protocol: contenders take turns (A B C A B C).

Every turn is a fresh process whose first steps are not counted."""
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """One contender of one case; `turn` runs its process once."""

    name: str
    turn: Callable[[], dict]
    title: str = ""


class Progress:
    """One line per turn with the time left, guessed from the turns so far."""

    def __init__(self, runs):
        self.left_ = list(runs)
        self.total_ = len(self.left_)
        self.seen_ = {}
        self.begun_ = time.monotonic()

    def done(self, run, seconds, text):
        self.left_.remove(run)
        self.seen_[run] = seconds
        mean = statistics.mean(self.seen_.values())
        left = sum(self.seen_.get(other, mean) for other in self.left_)
        done, now = self.total_ - len(self.left_), clock(time.monotonic() - self.begun_)
        print(
            f"[{done:3}/{self.total_}] {now}, about {clock(left)} left   "
            f"{run.title} {run.name} {text}",
            flush=True,
        )


def clock(seconds):
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def summary(turns):
    """Returns medians over all counted steps of all turns.
    The spread is the distance between the quartiles over the median."""
    steps = [ms for turn in turns for ms in turn["steps_ms"]]
    quartiles = statistics.quantiles(steps, n=4) if len(steps) > 1 else [steps[0]] * 3
    peaks = [turn["peak_bytes"] for turn in turns if turn["peak_bytes"]]
    return {
        "median_ms": statistics.median(steps),
        "min_ms": min(steps),
        "max_ms": max(steps),
        "spread": (quartiles[2] - quartiles[0]) / quartiles[1],
        "steps_ms": [round(ms, 3) for ms in steps],
        "turn_medians_ms": [round(statistics.median(turn["steps_ms"]), 3) for turn in turns],
        "first_step_s": round(statistics.median(turn["first_step_s"] for turn in turns), 3),
        "peak_bytes": max(peaks, default=None),
        "losses": next((turn["losses"] for turn in turns if turn["losses"][0] is not None), []),
    }


def measure(runs, rounds, progress):
    """Runs every Run of {name: Run} `rounds` times, in turns; returns {name: summary}."""
    turns = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.monotonic()
            turns[name].append(run.turn())
            progress.done(
                run,
                time.monotonic() - start,
                f"{statistics.median(turns[name][-1]['steps_ms']):.1f} ms",
            )
    return {name: summary(seen) for name, seen in turns.items()}
