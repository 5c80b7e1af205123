"""Hosts of a recipe: groups of processes on this machine, with what they print in files."""
import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

LIMIT_S = 100


class RecipeError(Exception):
    pass


def wait_until(condition, what, limit_s=LIMIT_S):
    deadline = time.monotonic() + limit_s
    while True:
        result = condition()
        if result:
            return result
        if time.monotonic() > deadline:
            raise RecipeError(f"no {what} within {limit_s} s")
        time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_listening(port):
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[1].endswith(wanted) and fields[3] == "0A":
                return True
    return False


def descendants(pid):
    children = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(after_name[1]), []).append(int(stat.parent.name))
    found, pending = [], [pid]
    while pending:
        pending += (mine := children.get(pending.pop(), []))
        found += mine
    return found


class Host:
    """What runs on one host. `process` is None if a stand-in for a scheduler has started it."""

    def __init__(self, pid, log, process=None):
        self.pid, self.log, self.process = pid, Path(log), process

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def is_running(self):
        """Whether the process is this one still, and no other that has got its number."""
        if self.process:
            return self.process.poll() is None
        for _ in range(3):  # a process that is just replacing its program has no variables
            try:
                if str(self.log.parent) in Path(f"/proc/{self.pid}/environ").read_text():
                    return True
            except OSError:
                return False
            time.sleep(0.05)
        return False

    def kill(self):
        """Loses the host: nothing on it can say goodbye."""
        for pid in [self.pid, *descendants(self.pid)] if self.is_running() else []:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        if self.process:
            self.process.wait()

    def send(self, signal_number):
        os.kill(self.pid, signal_number)

    def wait(self):
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            raise RecipeError(f"a host did not end within {LIMIT_S} s") from None


class Cluster:
    """The hosts of one recipe, and the folder in the place of the shared one."""

    def __init__(self, folder, programs, substitutions):
        self.folder, self.hosts, self.batches = folder, [], []
        self.port = free_port()
        self.substitutions = [("/shared/gpt", str(folder)), *substitutions]
        kept = ("HOME", "LD_LIBRARY_PATH")
        self.environment = {
            **{name: os.environ[name] for name in kept if name in os.environ},
            "PATH": f"{programs}:{os.environ['PATH']}",
            "RUN": str(folder),
            "HOSTS_FOLDER": str(folder),
            "OMP_NUM_THREADS": "1",
        }

    def text(self, recipe):
        """Returns the recipe with paths and numbers replaced. Each must be in it."""
        text = recipe.read_text()
        for old, new in self.substitutions:
            if not re.search(old, text):
                raise RecipeError(f"'{old}' is not in it, which the test replaces")
            text = re.sub(old, new, text)
        return text

    def start(self, command, environment):
        number = len(list(self.folder.glob("host*.log")))
        log = self.folder / f"host{number}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**self.environment, **environment},
                cwd=self.folder,
                start_new_session=True,
            )
        self.hosts.append(Host(process.pid, log, process))
        return self.hosts[-1]

    def started_by_stand_in(self, name):
        """Waits for a host that srun or mpirun has started."""
        pid = self.folder / f"{name}.pid"

        def is_there():
            has_ended = not self.batches[-1].is_running()
            if pid.exists() and pid.read_text().endswith("\n"):
                return True
            if has_ended:
                raise RecipeError("the script has ended without starting its hosts")
            return False

        wait_until(is_there, f"process {name}")
        self.hosts.append(Host(int(pid.read_text()), self.folder / f"{name}.log"))
        return self.hosts[-1]

    def output(self):
        return "".join(host.output() for host in self.hosts)

    def count(self, text):
        return self.output().count(text)

    def wait_while_running(self, is_there, what):
        """Waits until is_there(), or fails as soon as all hosts have ended."""

        def is_over():
            have_ended = not any(host.is_running() for host in self.batches + self.hosts)
            if is_there():
                return True
            if have_ended:
                raise RecipeError(f"all hosts have ended without {what}")
            return False

        wait_until(is_over, what)

    def wait_for(self, text, times=1):
        what = f"'{text}' (for the {times}. time)"
        self.wait_while_running(lambda: self.count(text) >= times, what)

    def wait_for_training(self, ranks):
        """Waits until the newest start of a host has so many ranks, which train."""

        def trains(host):
            start = host.output().rpartition("using world size: ")[2]
            return start.startswith(f"{ranks},") and "[before the start of training step]" in start

        self.wait_while_running(lambda: any(map(trains, self.hosts)), f"training on {ranks} ranks")

    def wait_for_port(self):
        wait_until(lambda: is_listening(self.port), f"listener at port {self.port}")

    def last_iteration(self):
        return max(map(int, re.findall(r"\] iteration +(\d+)/", self.output())))

    def end_after(self, iterations):
        """Writes the settings, which ranks read at their next start."""
        (self.folder / "run.yaml").write_text(TINY_RUN + f"train_iters: {iterations}\n")

    def stop(self):
        for host in self.batches + self.hosts:
            host.kill()


TINY_RUN = """num_layers: 2
hidden_size: 16
num_attention_heads: 2
seq_length: 16
max_position_embeddings: 16
vocab_size: 64
tokenizer_type: NullTokenizer
mock_data: true
micro_batch_size: 1
global_batch_size: 8
lr: 1.0e-3
lr_decay_style: constant
lr_decay_iters: 1000000
device: cpu
log_interval: 1
eval_iters: 0
"""
