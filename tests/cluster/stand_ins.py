#!/usr/bin/env python3
"""Stand-ins for srun, scontrol and mpirun: they start the processes of all hosts on this machine,
with the variables that the real programs set. Each process prints into its own file.

The options are those of the manuals srun(1), scontrol(1) and mpirun(1), as far as recipes use them;
any other is refused, as the real programs do."""
import os
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["HOSTS_FOLDER"])
SRUN_OPTIONS = {"--cpus-per-task", "--kill-on-bad-exit", "--wait", "--no-kill"}
SECONDS_OF_A_MINUTE = 1 / 20  # --wait=60 takes three seconds


def refuse(message):
    sys.exit(f"{sys.argv[1]}: {message}")


def run(command, environments, ends_on_failure, wait_s):
    """Runs the command once with each environment, as hosts. Returns the worst exit code."""
    job = os.environ.get("SLURM_JOB_ID", "")
    processes = []
    for index, environment in enumerate(environments):
        name = f"task{index}" + (f"-{job}" if job else "")
        with (FOLDER / f"{name}.log").open("a") as log:
            processes.append(
                subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
            )
        (FOLDER / f"{name}.pid").write_text(f"{processes[-1].pid}\n")
        time.sleep(0.5)  # all hosts are one here: the first must be the first to listen
    first_end = None
    while any(process.poll() is None for process in processes):
        ended = [process for process in processes if process.poll() is not None]
        first_end = first_end or (time.monotonic() if ended else None)
        is_late = wait_s and first_end and time.monotonic() > first_end + wait_s
        if is_late or (ends_on_failure and any(process.returncode for process in ended)):
            for process in processes:
                process.kill()
        time.sleep(0.05)
    codes = [process.returncode for process in processes]
    return max(code if code >= 0 else 128 - code for code in codes)


def srun(words):
    options = {}
    while words and words[0].startswith("-"):
        name, _, value = words.pop(0).partition("=")
        if name not in SRUN_OPTIONS:
            refuse(f"unrecognized option '{name}'")
        options[name] = value
    hosts = int(os.environ["SLURM_JOB_NUM_NODES"])
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEPID": "0",
        "SLURM_STEP_NODELIST": os.environ["SLURM_JOB_NODELIST"],
        "SLURM_STEP_NUM_NODES": str(hosts),
        "SLURM_STEP_NUM_TASKS": str(hosts),
        "SLURM_STEP_TASKS_PER_NODE": "1" if hosts == 1 else f"1(x{hosts})",
        "SLURM_NTASKS": str(hosts),
        "SLURM_NPROCS": str(hosts),
    }
    tasks = [
        {**step, "SLURM_PROCID": str(node), "SLURM_NODEID": str(node), "SLURM_LOCALID": "0"}
        for node in range(hosts)
    ]
    wait_s = float(options.get("--wait", 0)) * SECONDS_OF_A_MINUTE
    return run(words, tasks, options.get("--kill-on-bad-exit") == "1", wait_s)


def scontrol(words):
    if words[:2] == ["show", "hostnames"] and len(words) == 3:
        prefix, _, numbers = words[2].rstrip("]").partition("[")
        first, _, last = numbers.partition("-")
        for number in range(int(first), int(last or first) + 1):
            print(f"{prefix}{number}")
    elif words[0] == "requeue" and len(words) == 2:
        with (FOLDER / "requeued").open("a") as log:
            log.write(words[1] + "\n")
    else:
        refuse(f"invalid command {words}")
    return 0


def mpirun(words):
    options, exported = {}, {}
    while words and words[0].startswith("-"):
        name, value = words.pop(0), words.pop(0)
        if name == "-x":
            if value not in os.environ:
                refuse(f"-x {value}: not set")
            exported[value] = os.environ[value]
        elif name in ("--hostfile", "--map-by", "--bind-to"):
            options[name] = value
        else:
            refuse(f"unrecognized option '{name}'")
    if options["--map-by"] != "ppr:1:node":
        refuse("the stand-in knows only one process for each host")
    lines = Path(options["--hostfile"]).read_text().splitlines()
    hosts = len([line for line in lines if line and not line.startswith("#")])
    inherited = {"HOSTS_FOLDER", "HOME", "LD_LIBRARY_PATH", "OMP_NUM_THREADS"}
    for name in set(os.environ) - set(exported) - inherited:
        del os.environ[name]  # ssh brings none of them to another host
    processes = [
        {
            "OMPI_COMM_WORLD_SIZE": str(hosts),
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
            "OMPI_COMM_WORLD_LOCAL_RANK": "0",
            "OMPI_COMM_WORLD_NODE_RANK": "0",
            "OMPI_UNIVERSE_SIZE": str(hosts),
        }
        for rank in range(hosts)
    ]
    return run(words, processes, True, 0)


if __name__ == "__main__":
    sys.exit({"srun": srun, "scontrol": scontrol, "mpirun": mpirun}[sys.argv[1]](sys.argv[2:]))
