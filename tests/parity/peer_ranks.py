"""Starts the ranks of a peer's script, for scripts that stand beside this file.

The ranks join with torch.distributed's `env://`.

The store is held here and listens before the first rank starts, and all traffic stays on the
loopback device: neither a free port that somebody else takes in between nor the name of this
machine can make the reference fail.
"""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch.distributed as dist

TIMEOUT_SECONDS = 240
ATTEMPTS = 2  # a reference that dies is asked again; it is its answer that counts


def run(script, directory, ranks, timeout=TIMEOUT_SECONDS):
    """Starts `script DIRECTORY` as each rank; what they print goes into files there.
    Returns when all ranks have ended well; raises RuntimeError that says how each rank ended and
    quotes its last lines."""
    for attempt in range(1, ATTEMPTS + 1):
        failure = run_once(Path(__file__).with_name(script), directory, ranks, timeout)
        if failure is None:
            return
        print(f"note {script}, attempt {attempt} of {ATTEMPTS}: {failure}", flush=True)
    raise RuntimeError(failure)


def run_once(script, directory, ranks, timeout):
    """None, or what went wrong."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    started = []
    try:
        for rank in range(ranks):
            environment = {
                **os.environ,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "PYTHONFAULTHANDLER": "1",
            }
            log = Path(directory) / f"{script.stem}-rank{rank}.log"
            with log.open("wb") as output:
                started.append(
                    (
                        subprocess.Popen(
                            [sys.executable, script, directory],
                            env=environment,
                            stdout=output,
                            stderr=subprocess.STDOUT,
                        ),
                        log,
                    )
                )
        return first_failure(started, timeout)
    finally:
        for process, _ in started:
            process.kill()
            process.wait()


def first_failure(started, timeout):
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        codes = [process.poll() for process, _ in started]
        if all(code == 0 for code in codes):
            return None
        if any(codes):
            time.sleep(1)  # the others die of a lost connection, or of the same cause
            return obituary(started)
        time.sleep(0.05)
    return f"no end after {timeout} s. {obituary(started)}"


def obituary(started):
    """Says in one line how each rank ended that did not end well, which is what reports show.
    Below it stands the end of what these ranks wrote."""
    codes = [process.poll() for process, _ in started]
    logs = [said_in(log) for _, log in started]
    bad = [rank for rank, code in enumerate(codes) if code != 0]
    summary = "; ".join(
        f"rank {rank} of {len(started)} {ending(codes[rank])}: "
        f"{logs[rank][-1] if logs[rank] else '(it wrote nothing)'}"
        for rank in bad
    )
    return "\n".join(
        [summary, *(line for rank in bad for line in [f"-- rank {rank}", *logs[rank][-40:]])]
    )


def said_in(log):
    return [
        line[:300]
        for line in log.read_text(errors="replace").splitlines()
        if line.strip() and not line.startswith("Extension modules")
    ]


def ending(code):
    if code is None:
        return "has not ended"
    return (
        f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    )
