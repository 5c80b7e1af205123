"""Times the GPT-2 124M training step (batch 4 × 256, fp32) of PyTorch eager and of `megatron pretrain`, turn about, and prints medians and ratio."""
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
BATCH, SEQ_LENGTH = 4, 256
FLAGS = f"""--num-layers 12 --hidden-size 768 --num-attention-heads 12 --max-position-embeddings 1024 --openai-gelu --seq-length {SEQ_LENGTH}
    --micro-batch-size {BATCH} --global-batch-size {BATCH} --mock-data --tokenizer-type NullTokenizer --vocab-size 50257
    --hidden-dropout 0 --attention-dropout 0 --optimizer adam --lr 1e-4 --lr-decay-style constant --clip-grad 1.0 --eval-iters 0 --log-interval 1""".split()


def pytorch_steps(count):
    """Milliseconds of each of `count` eager steps in this process; the first is warm-up and left out."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(1234)
    model = GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    times = []
    for _ in range(count + 1):
        ids = torch.randint(0, 50257, (BATCH, SEQ_LENGTH + 1))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    return times[1:]


def run_pytorch(count):
    command = [sys.executable, __file__, "--pytorch-steps", str(count)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1])


def run_megatron(count):
    done = subprocess.run([MEGATRON, "pretrain", "gpt", *FLAGS, "--train-iters", str(count + 1)], capture_output=True, text=True)
    times = [float(value) for value in re.findall(r"elapsed time per iteration \(ms\): ([0-9.]+)", done.stdout)]
    if done.returncode != 0 or len(times) != count + 1:
        sys.exit(f"megatron pretrain ended with {done.returncode} after {len(times)} iterations:\n{done.stdout}{done.stderr}")
    return times[1:]


def machine():
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {"processor": names[0] if names else platform.processor(), "cores": len(os.sched_getaffinity(0)), "threads": os.environ["OMP_NUM_THREADS"]}


def summary(times):
    return {"median_ms": statistics.median(times), "min_ms": min(times), "max_ms": max(times), "steps_ms": times}


def show(result):
    tokens = BATCH * SEQ_LENGTH
    print(f"GPT-2 124M, batch {BATCH} x {SEQ_LENGTH}, fp32, {result['machine']['processor']}, {result['machine']['cores']} cores")
    print(f"{'':16}{'median ms':>12}{'min':>10}{'max':>10}{'tokens/s':>12}")
    for name in ("pytorch_eager", "megatron"):
        row = result[name]
        print(f"{name:16}{row['median_ms']:12.1f}{row['min_ms']:10.1f}{row['max_ms']:10.1f}{tokens / row['median_ms'] * 1e3:12.1f}")
    print(f"megatron is {result['speedup']:.3f} times as fast as PyTorch eager")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often the two take turns")
    parser.add_argument("--steps", type=int, default=4, help="counted steps per turn")
    parser.add_argument("--output", type=Path, default=ROOT / "bench/results/gpt2_124m.json")
    parser.add_argument("--pytorch-steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
    if arguments.pytorch_steps:
        print(json.dumps(pytorch_steps(arguments.pytorch_steps)))
        return
    times = {"pytorch_eager": [], "megatron": []}
    for _ in range(arguments.rounds):
        times["pytorch_eager"] += run_pytorch(arguments.steps)
        times["megatron"] += run_megatron(arguments.steps)
    result = {"machine": machine(), "rounds": arguments.rounds, **{name: summary(values) for name, values in times.items()}}
    result["speedup"] = result["pytorch_eager"]["median_ms"] / result["megatron"]["median_ms"]
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


if __name__ == "__main__":
    main()
