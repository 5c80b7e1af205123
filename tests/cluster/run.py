#!/usr/bin/env python3
"""Runs what the recipes of examples/cluster say, as the schedulers would, on this machine.

Two hosts of two ranks are groups of processes. See README.md for what is replaced."""
import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from hosts import Cluster, RecipeError
from scenarios import (
    PORT,
    RANKS,
    SAVES,
    jobset,
    mpirun,
    pytorchjob,
    slurm,
    slurm_elastic,
    torchrun_elastic,
    torchrun_etcd,
    torchrun_static,
    trainjob,
)

ROOT = Path(__file__).resolve().parents[2]


def scenarios(port):
    """Returns {name: (recipe, scenario, replacements)}, long ones first."""
    conf = (
        "join_timeout=600,last_call_timeout=30",
        "join_timeout=60,last_call_timeout=3,keep_alive_interval=1",
    )
    return {
        "torchrun elastic": ("torchrun.sh", torchrun_elastic, [RANKS, SAVES, conf]),
        "torchrun etcd": ("torchrun.sh", torchrun_etcd, [RANKS, SAVES, conf]),
        "jobset": ("jobset.yaml", jobset, [RANKS, SAVES, (PORT, port)]),
        "slurm elastic": ("slurm_elastic.sbatch", slurm_elastic, [RANKS, SAVES, (PORT, port)]),
        "pytorchjob": (
            "pytorchjob.yaml",
            pytorchjob,
            [('nprocPerNode: "8"', 'nprocPerNode: "2"'), SAVES, (PORT, port)],
        ),
        "trainjob": (
            "trainjob.yaml",
            trainjob,
            [("numProcPerNode: 8", "numProcPerNode: 2"), SAVES],
        ),
        "slurm": ("slurm.sbatch", slurm, [RANKS, SAVES]),
        "torchrun static": ("torchrun.sh", torchrun_static, [RANKS, SAVES]),
        "mpirun": ("mpirun.sh", mpirun, [RANKS, SAVES, (PORT, port)]),
    }


def find_torchrun():
    """A Python that has PyTorch: TORCH_PYTHON, that of the parity tests, or this one."""
    say = f'source "{ROOT}/tests/parity/environment.sh" && echo "$PYTHON"'
    peers = subprocess.run(["bash", "-c", say], capture_output=True, text=True, check=False)
    for python in (os.environ.get("TORCH_PYTHON"), peers.stdout.strip(), sys.executable):
        if python and shutil.which(python):
            command = [python, "-c", "import importlib.util as u; assert u.find_spec('torch')"]
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return python
    return None


def has_etcd(torch_python):
    """Whether there are the server and torchrun's client."""
    command = [torch_python, "-c", "import etcd"]
    is_client = subprocess.run(command, capture_output=True, check=False).returncode == 0
    return is_client and shutil.which("etcd") is not None


def write_programs(folder, program, torch_python):
    """Writes what the recipes find in PATH: the stand-ins, torchrun, and the program, whose
    launcher waits a second where it otherwise waits half a minute."""
    folder.mkdir()
    timers = "--last-call-seconds 1 --settle-seconds 1 --grace-seconds 5 --join-seconds 60"
    lines = {
        name: f'exec "{sys.executable}" "{ROOT}/tests/cluster/stand_ins.py" {name} "$@"'
        for name in ("srun", "scontrol", "mpirun")
    }
    lines["torchrun"] = f'exec "{torch_python}" -m torch.distributed.run "$@"'
    lines["megatron"] = (
        f'[ "$1" = launch ] && shift && set -- launch {timers} "$@"\nexec "{program}" "$@"'
    )
    for name, line in lines.items():
        (folder / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / name).chmod(0o755)


def run_scenario(name, recipes, work):
    folder = work / name.replace(" ", "_")
    folder.mkdir()
    cluster = Cluster(folder, work / "programs", [])
    recipe, scenario, replacements = scenarios(str(cluster.port))[name]
    cluster.substitutions += replacements
    start = time.monotonic()
    try:
        scenario(cluster, recipes / recipe)
        return f"ok   {name} ({recipe}, {time.monotonic() - start:.0f} s)", True
    except Exception as error:  # of any kind: the scenario has failed
        reason = error if isinstance(error, RecipeError) else traceback.format_exc()
        hosts = cluster.batches + cluster.hosts
        logs = "".join(f"--- {host.log.name}\n{host.output()[-2500:]}" for host in hosts)
        return f"FAIL {name} ({recipe}): {reason}\n{logs}", False
    finally:
        cluster.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default=ROOT / "build/bin/megatron", type=Path)
    parser.add_argument("--recipes", default=ROOT / "examples/cluster", type=Path)
    parser.add_argument("--only", default="", help="run the scenarios whose names contain this")
    parser.add_argument("--jobs", default=4, type=int, help="scenarios at a time; most wait")
    options = parser.parse_args()
    names = [name for name in scenarios("") if options.only in name]
    torch_python = find_torchrun()
    if not torch_python:
        names = [name for name in names if "torchrun" not in name]
        print("!! torchrun: SKIPPED, no Python here has PyTorch (TORCH_PYTHON names one)")
    elif not has_etcd(torch_python):
        names = [name for name in names if name != "torchrun etcd"]
        print("!! torchrun etcd: SKIPPED, etcd (package etcd-server) or python-etcd is missing")
    with tempfile.TemporaryDirectory() as work:
        write_programs(Path(work) / "programs", options.program.resolve(), torch_python)
        with ThreadPoolExecutor(options.jobs) as pool:
            run = partial(run_scenario, recipes=options.recipes, work=Path(work))
            passed = True
            for line, is_passed in pool.map(run, names):
                print(line, flush=True)
                passed &= is_passed
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
