"""Times saves and loads of one training run's tensors, ours and PyTorch's in turns.

The tensors are weights and Adam's two states of a GPT in fp32. Every save is flushed to the disk
(fsync), ours by the program, the others here; `disk` writes and flushes as many zero bytes, and
loads find their files in the page cache. In the background (`--async-save`, and
torch.distributed.checkpoint.async_save beside equal matrix products), `blocked` is the time in
which steps stop, and `slower` how much the steps that run during the write are slowed. It writes
results/checkpoints.json.

  bench/run.sh checkpoints [--gigabytes 2] [--rounds 3] [--folder DIR]"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import machine
from inputs import MEGATRON, ROOT

if {"-h", "--help"}.isdisjoint(sys.argv):
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp

HIDDEN = 1024
BYTES_PER_LAYER = 12 * HIDDEN**2 * 12  # weights, and two states each


def run_of_ours(folder, layers, iters, *more):
    """Returns the output of a run that saves at each third iteration."""
    command = [MEGATRON, "pretrain", "gpt", "--num-layers", layers, "--hidden-size", HIDDEN]
    command += ["--num-attention-heads", 16, "--seq-length", 64, "--micro-batch-size", 1]
    command += ["--tokenizer-type", "NullTokenizer", "--vocab-size", 1000, "--mock-data"]
    command += ["--lr", "1e-4", "--eval-iters", 0, "--train-iters", iters, "--log-interval", 1]
    command += ["--timing-log-level", 2, "--seed", 1, *more]
    done = subprocess.run(
        [str(part) for part in command], cwd=folder, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def timer(text, name):
    """Seconds of a timer, one for each time that it was printed."""
    return [float(ms) / 1000 for ms in re.findall(rf"{name} \.+: \(\S+, (\S+)\)", text)]


def step_times(text):
    found = re.findall(r"elapsed time per iteration \(ms\): (\S+)", text)
    return [float(ms) / 1000 for ms in found]


def seconds_of(call):
    start = time.monotonic()
    call()
    return time.monotonic() - start


def flush(path):
    with open(path, "rb+") as file:
        os.fsync(file.fileno())


def write_zeros(path, size):
    block = bytes(1 << 24)
    with open(path, "wb") as file:
        for _ in range(size // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())


def tensors_of(checkpoint):
    """All tensors of a checkpoint of ours, as a state dict."""
    state = {}
    for path in sorted(checkpoint.glob("*.safetensors")):
        state |= safetensors.torch.load_file(path)
    return {name: tensor.clone() for name, tensor in state.items()}


def peers(state, folder):
    """Name → (save, load), on the same tensors."""
    pt, st, dist = folder / "all.pt", folder / "all.safetensors", folder / "dcp"

    def save_pt():
        torch.save(state, pt)
        flush(pt)

    def save_st():
        safetensors.torch.save_file(state, st)
        flush(st)

    def save_dcp():
        shutil.rmtree(dist, ignore_errors=True)
        dcp.save(state, checkpoint_id=dist, no_dist=True)

    into = {name: torch.empty_like(tensor) for name, tensor in state.items()}

    def copy_in(found):
        for name, tensor in into.items():
            tensor.copy_(found[name])

    return {
        "torch.save": (save_pt, lambda: copy_in(torch.load(pt, mmap=True))),
        "safetensors": (save_st, lambda: copy_in(safetensors.torch.load_file(st))),
        "DCP": (save_dcp, lambda: dcp.load(into, checkpoint_id=dist, no_dist=True)),
    }


def async_dcp(state, folder):
    """Seconds that async_save takes of the caller, and how much it slows matrix products."""
    a, out = torch.randn(1024, 1024), torch.empty(1024, 1024)

    def step():
        for _ in range(20):
            torch.mm(a, a, out=out)

    alone = statistics.median(seconds_of(step) for _ in range(8))
    shutil.rmtree(folder / "dcp", ignore_errors=True)
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": "29477"}
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    beside = []
    for _ in range(2):  # the second finds its buffers
        started = time.monotonic()
        future = dcp.async_save(state, checkpoint_id=folder / "dcp")
        blocked = time.monotonic() - started
        while not future.done():
            beside.append(seconds_of(step))
        future.result()
    torch.distributed.destroy_process_group()
    return {"blocked_s": blocked, "slower": statistics.median(beside) / alone - 1}


def async_ours(folder, layers):
    """The same of ours; the steps behind a save run beside its write."""
    shutil.rmtree(folder / "save", ignore_errors=True)
    said = run_of_ours(
        folder, layers, 18, "--save", "save", "--save-interval", 6, "--async-save"
    )  # fmt: skip
    steps = step_times(said)
    alone = statistics.median(steps[1:6])
    return {
        "blocked_s": timer(said, "save-checkpoint")[1],
        "slower": statistics.median(steps[6:8] + steps[12:14]) / alone - 1,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="a folder on the disk to measure")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")
    layers = max(1, round(options.gigabytes * 1e9 / BYTES_PER_LAYER))
    times = {}

    def add(name, seconds):
        times.setdefault(name, []).append(seconds)

    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        said = run_of_ours(folder, layers, 1, "--save", "save", "--save-interval", 1)
        state = tensors_of(folder / "save" / "iter_0000001")
        size = sum(tensor.nbytes for tensor in state.values())
        others = peers(state, folder)
        for _ in range(options.rounds):
            shutil.rmtree(folder / "save")
            said = run_of_ours(folder, layers, 1, "--save", "save", "--save-interval", 1)
            add("megatron save", timer(said, "save-checkpoint")[0])
            said = run_of_ours(folder, layers, 2, "--load", "save")
            add("megatron load", timer(said, "load-checkpoint")[0])
            for peer, (save, load) in others.items():
                add(f"{peer} save", seconds_of(save))
                add(f"{peer} load", seconds_of(load))
            add("disk save", seconds_of(lambda: write_zeros(folder / "zeros", size)))
        background = {"megatron": async_ours(folder, layers), "DCP": async_dcp(state, folder)}

    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in sorted(medians.items(), key=lambda pair: (pair[0].split()[-1], pair[1])):
        print(f"{name:18} {seconds:7.2f} s {size / seconds / 1e9:6.2f} GB/s")
    for name, found in background.items():
        share = found["blocked_s"] / medians[f"{name} save"]
        print(
            f"{name} in the background: blocked {found['blocked_s']:.2f} s "
            f"({share:.1%} of a save), steps {found['slower']:+.1%}"
        )
    result = {"bytes": size, "seconds": times, "background": background}
    result["machine"] = machine.describe()
    results = ROOT / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / "checkpoints.json").write_text(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
