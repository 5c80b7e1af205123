"""Runs scripts of this folder, as many at a time as there are cores (PARITY_JOBS=N: N of them).

Much of a script's time would be the import of its peers. They are imported here once, and each
script runs as `__main__` in a fork of this interpreter, with an output, a working directory and a
TMPDIR of its own.

    run.py FOLDER [NAME...]    runs NAME_parity.py, or all; what they write goes below FOLDER
"""
import gc
import importlib
import os
import random
import runpy
import signal
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
# Started first, so that no long one is left alone at the end. The very first one needs no peers,
# and starts while they are imported.
LONGEST = """launch hf megatron_checkpoints deepspeed generation hybrid precision t5 expert_parallel
tensor_parallel rope_extension tokenizers tokenizer_kinds tokenizer_training datasets mcore_moe
moe_strength context""".split()
TIME_LIMIT_S = 900
# They may build a program of our tests; DeepSpeed and the families of hf train many models.
TIME_LIMITS_S = {
    "mesh": 3600,
    "pipeline_layout": 3600,
    "embeddings": 3600,
    "deepspeed": 1800,
    "hf": 1800,
}
# What several scripts import. pyarrow makes a thread.
PEERS = """numpy torch torch.utils.cpp_extension safetensors.torch transformers
transformers.models.llama.modeling_llama""".split()
MEGATRON_CORE = """megatron.core.parallel_state megatron.core.models.gpt megatron.core.optimizer
megatron.core.datasets.gpt_dataset megatron.core.datasets.t5_dataset""".split()


@dataclass
class Running:
    name: str
    folder: Path
    start: float

    def seconds(self):
        return time.monotonic() - self.start


def no_cuda(*_, **__):
    raise RuntimeError("no CUDA here")


def import_peers(work):
    """Imports what several scripts use, in the environment that mcore_cpu.py and mcore_models.py
    set for it. What these two patch is left to the scripts. Returns whether forks may follow."""
    added = {"TORCHDYNAMO_DISABLE": "1", "TORCH_CUDA_ARCH_LIST": "9.0"}
    os.environ.update(added)
    errors = os.dup(2)
    os.dup2(os.open(work / "warnings", os.O_WRONLY | os.O_CREAT), 2)
    try:
        for name in PEERS:
            importlib.import_module(name)
        extensions = sys.modules["torch.utils.cpp_extension"]
        load_inline, extensions.load_inline = extensions.load_inline, no_cuda
        for name in MEGATRON_CORE:
            importlib.import_module(name)
        extensions.load_inline = load_inline
    except Exception as error:  # a script that needs it fails for the same reason, and says more
        print(f"note importing the peers: {type(error).__name__}: {error}", flush=True)
    os.dup2(errors, 2)
    for name in added:
        del os.environ[name]
    gc.collect()
    gc.freeze()
    # A fork would miss the other threads, but not what they had locked.
    threads = len(os.listdir("/proc/self/task"))
    if threads > 1:
        print(f"note importing the peers made {threads} threads: scripts import them", flush=True)
    return threads == 1


def run_script(name, folder, imports):
    """The child's life, which ends as an interpreter of its own would."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(folder)
    for descriptor, file in ((1, "output"), (2, "errors")):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), descriptor)
    os.environ["TMPDIR"] = str(folder)
    # megatron-core compiles an extension when imported, and waits for ever where another run left
    # its lock.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")
    script = str(HERE / f"{name}_parity.py")
    if not imports:
        os.execv(sys.executable, [sys.executable, script])
    tempfile.tempdir = None
    random.seed()
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")
    sys.exit()


def start(name, work, running, imports):
    folder = work / name
    folder.mkdir()
    process = os.fork()
    if process == 0:
        running.clear()  # none of them is ours to stop
        run_script(name, folder, imports)
    running[process] = Running(name, folder, time.monotonic())


def kill(process, signal_number):
    with suppress(ProcessLookupError):
        os.killpg(process, signal_number)


def stop(process):
    """Interrupts a script, which may tidy up for ten seconds."""
    kill(process, signal.SIGINT)
    deadline, ended = time.monotonic() + 10, False
    while time.monotonic() < deadline and not ended:
        time.sleep(0.05)
        ended = os.waitpid(process, os.WNOHANG) != (0, 0)
    kill(process, signal.SIGKILL)
    if not ended:
        os.waitpid(process, 0)


def wait(running):
    """Waits for one script and returns it with the reason why it failed, if it did."""
    while True:
        process, status = os.waitpid(-1, os.WNOHANG)
        if process:
            kill(process, signal.SIGKILL)  # what it left behind
            code = os.waitstatus_to_exitcode(status)
            reason = f"ended with exit code {code}" if code > 0 else ""
            if code < 0:
                reason = f"was ended by {signal.Signals(-code).name}"
            return running.pop(process), reason
        for process, script in running.items():
            limit = TIME_LIMITS_S.get(script.name, TIME_LIMIT_S)
            if script.seconds() > limit:
                stop(process)
                return running.pop(process), f"took longer than {limit} s"
        time.sleep(0.05)


def show(script, reason):
    """Prints the checks of a script, or all it said if it failed. Returns how many passed and how
    many failed."""
    output, errors = (
        (script.folder / name).read_text(errors="replace") for name in ("output", "errors")
    )
    checks = [line for line in output.splitlines() if line.startswith(("ok ", "FAIL ", "note "))]
    passed = sum(line.startswith("ok ") for line in checks)
    failed = sum(line.startswith("FAIL ") for line in checks)
    if not reason and not passed and not failed:
        if checks:  # a note that says why nothing was compared
            checks.append(f"ok   {script.name}_parity.py")
            passed = 1
        else:
            reason = "printed no check"
    if reason and not failed:
        checks.append(f"FAIL {script.name}_parity.py {reason}")
        failed = 1
    if failed:
        checks += [f"---- whole output of {script.name}_parity.py", output + errors, "----"]
    print("\n".join([f"== {script.name}, {script.seconds():.1f} s", *checks]), flush=True)
    return passed, failed


def main():
    work = Path(sys.argv[1])
    scripts = sorted(HERE.glob("*_parity.py"))
    names = sys.argv[2:] or [path.name.removesuffix("_parity.py") for path in scripts]
    waiting = sorted(dict.fromkeys(names), key=lambda name: (LONGEST + [name]).index(name))
    jobs = int(os.environ.get("PARITY_JOBS") or len(os.sched_getaffinity(0)))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    running, seconds, passed, failed = {}, {}, 0, 0
    try:
        if waiting[0] == LONGEST[0] and jobs > 1:
            start(waiting.pop(0), work, running, imports=False)
        imports = len(waiting) > 1 and import_peers(work)
        while waiting or running:
            while waiting and len(running) < jobs:
                start(waiting.pop(0), work, running, imports)
            script, reason = wait(running)
            seconds[script.name] = script.seconds()
            more_passed, more_failed = show(script, reason)
            passed, failed = passed + more_passed, failed + more_failed
    finally:
        for process in running:
            stop(process)
    slowest = sorted(seconds, key=seconds.get, reverse=True)[:10]
    print("slowest: " + ", ".join(f"{name} {seconds[name]:.1f} s" for name in slowest))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
