"""Runs one turn of one contender: a fresh process, watched from outside.

It gives each step's milliseconds and loss, the time to the end of the first step, and the highest
resident memory over the later steps: that of the process, or of the rank that has most."""
import json
import os
import re
import subprocess
import time
from pathlib import Path

OUR_STEP = re.compile(
    r"elapsed time per iteration \(ms\): ([0-9.]+).*\| lm loss: ([-+.0-9Ee]+|nan|inf)"
)
ATTENTION = re.compile(r"forward +([0-9.]+) ms +backward +([0-9.]+) ms")  # medians of several calls
LLMC_STEP = re.compile(
    r"^step \d+: train loss [0-9.naif-]+ \(took ([0-9.]+) ms\)"
)  # its own weights and tokens: the loss says nothing here


def step_of(line):
    """(milliseconds, loss) of a line that reports a step; nothing for other lines."""
    if line.startswith('{"ms"'):
        row = json.loads(line)
        return row["ms"], row["loss"]
    if found := OUR_STEP.search(line):
        return float(found[1]), float(found[2])
    if found := ATTENTION.search(line):
        return float(found[1]) + float(found[2]), None
    found = LLMC_STEP.search(line)
    return (float(found[1]), None) if found else None


def peak_bytes(pid):
    """The highest resident set so far (Linux), or nothing once the process has gone."""
    try:
        return int(re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[1]) << 10
    except (OSError, TypeError):
        return None


def children(pid):
    """The processes that `pid` has started and that still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            parent = re.search(r"^PPid:\s+(\d+)", path.read_text(), re.M)
        except OSError:  # it has just ended
            continue
        if parent and int(parent[1]) == pid:
            found.append(int(path.parent.name))
    return sorted(found)


def reset_peak(pid):
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    except OSError:
        pass


class StepMonitor:
    """What the lines of a running turn have told so far."""

    def __init__(self, warm, launched=False):
        self.warm_, self.launched_ = warm, launched
        self.begun_ = time.monotonic()
        self.times, self.losses, self.others = [], [], []
        self.first_step_s = None
        self.rank_peaks = {}  # {process: bytes} over the counted steps

    def line(self, line, pid):
        step = step_of(line)
        if step is None:
            self.others.append(line)
            return
        self.times.append(step[0])
        self.losses.append(step[1])
        self.first_step_s = self.first_step_s or time.monotonic() - self.begun_
        for rank in children(pid) if self.launched_ else [pid]:
            if len(self.times) == self.warm_:
                reset_peak(rank)
            if peak := peak_bytes(rank):
                self.rank_peaks[rank] = peak


def watch(turn, steps, warm, what, work):
    """Runs `steps` steps of which the first `warm` are not counted.
    It ends the suite with the process's own words if the process fails."""
    errors = work / "errors.txt"
    environment = {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(work / "inductor"),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_VERBOSITY": "error",
        **turn.environment,
    }
    with open(errors, "w") as error_file:
        process = subprocess.Popen(
            turn.command,
            stdout=subprocess.PIPE,
            stderr=error_file,
            text=True,
            env=environment,
            cwd=turn.folder,
        )
        seen = StepMonitor(warm, turn.launched)
        try:
            for line in process.stdout:
                seen.line(line, process.pid)
                if turn.endless and len(seen.times) == steps:
                    process.kill()
        finally:
            process.kill() if process.poll() is None and len(seen.times) < steps else None
        code = process.wait()
    if (code != 0 and not turn.endless) or len(seen.times) != steps:
        said = "".join(seen.others) + errors.read_text()
        raise SystemExit(
            f"{what} ended with {code} after {len(seen.times)} of {steps} steps:\n"
            f"{' '.join(map(str, turn.command))}\n{said}"
        )
    return {
        "steps_ms": seen.times[warm:],
        "losses": seen.losses,
        "first_step_s": seen.first_step_s,
        "peak_bytes": max(seen.rank_peaks.values(), default=None),
        "lines": seen.others,
    }


def start_seconds(turn, what, work):
    """As if the time to the end of the first step were a step's."""
    seen = watch(turn, 1, 0, what, work)
    return {**seen, "steps_ms": [seen["first_step_s"] * 1e3], "losses": [None]}
