"""Times the GPT-2 124M training step of PyTorch and of `megatron pretrain`, turn about, and prints medians and ratio: by default batch 4 × 256 in fp32 on
the processor beside PyTorch eager; with --device cuda batch 16 × 1024 beside PyTorch compiled on the same GPU, in --dtype bf16 under autocast."""
import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MEGATRON = os.environ.get("MEGATRON", str(ROOT / "build/bin/megatron"))
SHAPES = {"cpu": (4, 256), "cuda": (16, 1024)}
FLAGS = """--num-layers 12 --hidden-size 768 --num-attention-heads 12 --max-position-embeddings 1024 --openai-gelu --mock-data --tokenizer-type NullTokenizer --vocab-size 50257
    --hidden-dropout 0 --attention-dropout 0 --optimizer adam --lr 1e-4 --lr-decay-style constant --clip-grad 1.0 --eval-iters 0 --log-interval 1""".split()


def pytorch_steps(count, device, dtype):
    """Milliseconds of each of `count` steps in this process, after warm-up steps that are left out; compiled on a GPU, eager on the processor."""
    import contextlib

    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    batch, seq_length = SHAPES[device]
    warmup = 1 if device == "cpu" else 5
    torch.manual_seed(1234)
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)

    def loss_of(ids):
        logits = model(ids[:, :-1], use_cache=False).logits
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    if device == "cuda":
        loss_of = torch.compile(loss_of)
    times = []
    for _ in range(count + warmup):
        ids = torch.randint(0, 50257, (batch, seq_length + 1), device=device)
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16) if dtype == "bf16" else contextlib.nullcontext():
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) * 1e3)
    return times[warmup:]


def run_pytorch(count, device, dtype):
    command = [sys.executable, __file__, "--pytorch-steps", str(count), "--device", device, "--dtype", dtype]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])


def run_megatron(count, device, dtype):
    batch, seq_length = SHAPES[device]
    warmup = 1 if device == "cpu" else 5
    flags = [*FLAGS, "--seq-length", str(seq_length), "--micro-batch-size", str(batch), "--global-batch-size", str(batch), "--device", device]
    flags += ["--bf16"] if dtype == "bf16" else []
    done = subprocess.run([MEGATRON, "pretrain", "gpt", *flags, "--train-iters", str(count + warmup)], capture_output=True, text=True)
    times = [float(value) for value in re.findall(r"elapsed time per iteration \(ms\): ([0-9.]+)", done.stdout)]
    if done.returncode != 0 or len(times) != count + warmup:
        sys.exit(f"megatron pretrain ended with {done.returncode} after {len(times)} iterations:\n{done.stdout}{done.stderr}")
    return times[warmup:]


def machine(device):
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    result = {"processor": names[0] if names else platform.processor(), "cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}
    if device == "cuda":
        query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "--id=0"]
        result["gpu"] = subprocess.run(query, check=True, capture_output=True, text=True).stdout.strip()
    return {**result, "date": time.strftime("%Y-%m-%d")}


def summary(times):
    return {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "steps_ms": times}


def show(result):
    batch, seq_length = SHAPES[result["device"]]
    where = result["machine"].get("gpu") or f"{result['machine']['processor']}, {result['machine']['cores']} cores"
    print(f"GPT-2 124M, batch {batch} x {seq_length}, {result['dtype']}, {where}")
    print(f"{'':16}{'median ms':>12}{'min':>10}{'max':>10}{'tokens/s':>12}")
    for name in (result["peer"], "megatron"):
        row = result[name]
        print(f"{name:16}{row['median_ms']:12.1f}{row['min_ms']:10.1f}{row['max_ms']:10.1f}{batch * seq_length / row['median_ms'] * 1e3:12.1f}")
    print(f"megatron is {result['speedup']:.3f} times as fast as {result['peer']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often the two take turns")
    parser.add_argument("--steps", type=int, help="counted steps per turn (4, on a GPU 20)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--output", type=Path, help="default: bench/results/gpt2_124m.json, on a GPU or in bf16 with their names added")
    parser.add_argument("--pytorch-steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    device, dtype = arguments.device, arguments.dtype
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    if arguments.pytorch_steps:
        print(json.dumps(pytorch_steps(arguments.pytorch_steps, device, dtype)))
        return
    steps = arguments.steps or (4 if device == "cpu" else 20)
    suffix = "".join(f"_{word}" for word in (device, dtype) if word not in ("cpu", "fp32"))
    output = arguments.output or ROOT / f"bench/results/gpt2_124m{suffix}.json"
    peer = "pytorch_eager" if device == "cpu" else "pytorch_compiled"
    times = {peer: [], "megatron": []}
    for _ in range(arguments.rounds):
        times[peer] += run_pytorch(steps, device, dtype)
        times["megatron"] += run_megatron(steps, device, dtype)
    result = {"machine": machine(device), "device": device, "dtype": dtype, "peer": peer, "rounds": arguments.rounds}
    result.update({name: summary(values) for name, values in times.items()})
    result["speedup"] = result[peer]["median_ms"] / result["megatron"]["median_ms"]
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


if __name__ == "__main__":
    main()
