"""Starts the same four ranks by `megatron launch`, by the real torchrun and by the real mpirun.

They run on one host and on two (network namespaces joined by a veth link), and have one loss curve.
It also checks how each of them ends when a rank was told something else."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import program
from report import Report

TWO_HOSTS = str(Path(__file__).resolve().parents[1] / "cli/two_hosts.sh")
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--no-python"]
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
PRETRAIN = [
    program.MEGATRON,
    "pretrain",
    "gpt",
    "--num-layers",
    "2",
    "--hidden-size",
    "32",
    "--num-attention-heads",
    "4",
    "--seq-length",
    "16",
    "--vocab-size",
    "64",
    "--tokenizer-type",
    "NullTokenizer",
    "--mock-data",
    "--micro-batch-size",
    "1",
    "--global-batch-size",
    "8",
    "--tensor-model-parallel-size",
    "2",
    "--train-iters",
    "4",
    "--lr",
    "1e-2",
    "--lr-decay-style",
    "constant",
    "--eval-iters",
    "0",
    "--log-interval",
    "1",
    "--num-workers",
    "1",
    "--distributed-timeout-minutes",
    "5",
]


class Ended:
    def __init__(self, codes, output, seconds):
        self.codes, self.output, self.seconds = codes, output, seconds


def run(commands, limit_s=400):
    """Runs commands side by side in sessions of their own.
    Returns their exit codes and what they all said."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        processes = [
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=ENVIRONMENT,
                start_new_session=True,
            )
            for command in commands
        ]
        try:
            codes = [
                process.wait(max(1, limit_s - (time.monotonic() - start))) for process in processes
            ]
        finally:
            for process in processes:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        log.seek(0)
        return Ended(codes, log.read(), time.monotonic() - start)


@contextmanager
def two_hosts():
    """Gives a function (host 1 or 2, command) → command on that host.
    Gives None, loudly, where the machine allows no namespaces."""
    name = f"mg{os.getpid()}"
    made = subprocess.run([TWO_HOSTS, "up", name], capture_output=True, text=True)
    if made.returncode:
        print(f"SKIPPED everything on two hosts: {made.stderr.strip()}", file=sys.stderr)
        print(f"ok   two hosts: SKIPPED, {made.stderr.strip()}")
        yield None
        return
    try:
        yield lambda host, command: [TWO_HOSTS, "on", name, str(host), *command]
    finally:
        subprocess.run([TWO_HOSTS, "down", name], check=True)


def losses(ended):
    return program.log_values(ended.output, "lm loss")


def check_curve(report, name, expected, commands):
    with report.guard(name):
        ended = run(commands)
        if any(ended.codes) or len(losses(ended)) != len(expected):
            report.result(
                name,
                False,
                f"exit codes {ended.codes}, {len(losses(ended))} losses\n{ended.output[-3000:]}",
            )
        else:
            report.close(name, losses(ended), expected)


def check_refusal(report, name, commands, message):
    """Checks that every command ends with a failure within seconds.
    The message must stand in the output once."""
    with report.guard(name):
        ended = run(commands)
        times = ended.output.count(message)
        passed = all(ended.codes) and times == 1 and ended.seconds < 40
        report.result(
            name,
            passed,
            f"exit codes {ended.codes}, said {times} times, {ended.seconds:.1f} s"
            + ("" if passed else "\n" + ended.output[-3000:]),
        )


def different_learning_rate(rank_variable, rank):
    """The command of every rank, of which one has another learning rate."""
    return [
        "sh",
        "-c",
        f'[ "${rank_variable}" = {rank} ] && set -- "$@" --lr 3e-2; exec "$@"',
        "sh",
        *PRETRAIN,
    ]


def on_one_host(report, expected):
    check_curve(
        report,
        "torchrun, one host",
        expected,
        [[*TORCHRUN, "--nproc-per-node", "4", "--master-port", "29641", *PRETRAIN]],
    )
    check_curve(
        report,
        "torchrun, elastic rendezvous",
        expected,
        [
            [
                *TORCHRUN,
                "--nproc-per-node",
                "4",
                "--rdzv-backend",
                "c10d",
                "--rdzv-endpoint",
                "127.0.0.1:29642",
                "--rdzv-id",
                "a-run",
                *PRETRAIN,
            ]
        ],
    )
    check_curve(
        report,
        "torchrun, without its agent's store",
        expected,
        [
            [
                "env",
                "TORCHELASTIC_USE_AGENT_STORE=False",
                "MASTER_PORT=29643",
                *torchrun_replacing_store(4, 29643),
            ]
        ],
    )
    check_curve(report, "mpirun, one host", expected, [[*MPIRUN, "-n", "4", *PRETRAIN]])
    difference = "rank 3 was started with --lr 0.03, rank 0 with --lr 0.01"
    check_refusal(
        report,
        "torchrun: a rank with other flags",
        [
            [
                *TORCHRUN,
                "--nproc-per-node",
                "4",
                "--master-port",
                "29644",
                *different_learning_rate("RANK", 3),
            ]
        ],
        difference,
    )
    check_refusal(
        report,
        "mpirun: a rank with other flags",
        [[*MPIRUN, "-n", "4", *different_learning_rate("OMPI_COMM_WORLD_RANK", 3)]],
        difference,
    )
    wrong = [*PRETRAIN, "--tensor-model-parallel-size", "3"]
    check_refusal(
        report,
        "torchrun: a world that the degrees do not divide",
        [[*TORCHRUN, "--nproc-per-node", "4", "--master-port", "29645", *wrong]],
        "megatron pretrain: error:",
    )
    check_refusal(
        report,
        "mpirun: a world that the degrees do not divide",
        [[*MPIRUN, "-n", "4", *wrong]],
        "megatron pretrain: error:",
    )
    check_refusal(
        report,
        "mpirun: a flag that does not exist",
        [[*MPIRUN, "-n", "4", *PRETRAIN, "--num-layer", "2"]],
        "--num-layer: unknown flag",
    )


def torchrun_replacing_store(size, port):
    """torchrun whose workers host the store themselves, at another port than the agent's."""
    worker = f'export TORCHELASTIC_USE_AGENT_STORE=False MASTER_PORT={port}; exec "$@"'
    return [
        *TORCHRUN,
        "--nproc-per-node",
        str(size),
        "--master-port",
        str(port + 100),
        "sh",
        "-c",
        worker,
        "sh",
        *PRETRAIN,
    ]


def on_two_hosts(report, on, expected):
    def both(command_of):
        return [on(host, command_of(host - 1)) for host in (1, 2)]

    def launch(node, *more):
        return [
            program.MEGATRON,
            "launch",
            "--nnodes",
            "2",
            "--node-rank",
            str(node),
            "--master-addr",
            "host1",
            "--nproc-per-node",
            "2",
            *more,
            "--",
            *PRETRAIN[1:],
        ]

    def torchrun(node):
        return [
            *TORCHRUN,
            "--nnodes",
            "2",
            "--node-rank",
            str(node),
            "--master-addr",
            "host1",
            "--master-port",
            "29500",
            "--nproc-per-node",
            "2",
            *PRETRAIN,
        ]

    check_curve(report, "megatron launch, two hosts", expected, both(launch))
    check_curve(report, "torchrun, two hosts", expected, both(torchrun))
    with tempfile.TemporaryDirectory() as folder:
        agent = Path(folder) / "agent"  # what mpirun calls in place of ssh
        agent.write_text(
            "#!/bin/sh\nhost=$1; shift\n"
            f'exec {" ".join(on(1, [])[:-1])} "${{host#host}}" sh -c "$*"\n'
        )
        agent.chmod(0o755)
        mpirun = [
            *MPIRUN,
            "--mca",
            "plm_rsh_agent",
            str(agent),
            "--mca",
            "oob_tcp_if_include",
            "10.213.0.0/24",
            "--mca",
            "plm_rsh_no_tree_spawn",
            "1",
            "--host",
            "host1:2,host2:2",
            "-n",
            "4",
            "-x",
            "MASTER_ADDR=host1",
            "-x",
            "MASTER_PORT=29500",
        ]
        check_curve(report, "mpirun, two hosts", expected, [on(1, [*mpirun, *PRETRAIN])])


def main():
    report = Report()
    with report.guard("megatron launch, one host"):
        ended = run([[program.MEGATRON, "launch", "--nproc-per-node", "4", "--", *PRETRAIN[1:]]])
        expected = losses(ended)
        passed = ended.codes == [0] and len(expected) == 4
        report.result(
            "megatron launch, one host",
            passed,
            f"losses {expected}" if passed else ended.output[-3000:],
        )
    if not shutil.which("mpirun"):
        report.result("mpirun is installed", False, "install openmpi-bin")
    on_one_host(report, expected)
    with two_hosts() as on:
        if on:
            on_two_hosts(report, on, expected)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
