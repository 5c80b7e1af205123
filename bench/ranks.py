"""Times the GPT-2 124M training step (batch 4 × 256 in all, fp32) on one rank and on two, one thread each, turn about: `megatron launch` with
data or tensor parallelism beside PyTorch's DistributedDataParallel over Gloo on the same model. Prints medians, the gain from the second rank and
the ratio to DistributedDataParallel."""
import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import gpt2_124m

BATCH, SEQ_LENGTH = gpt2_124m.SHAPES["cpu"]
LAYOUTS = {
    "megatron, 1 rank": (1, ["--micro-batch-size", "4"]),
    "megatron, dp 2": (2, ["--micro-batch-size", "2", "--overlap-grad-reduce"]),
    "megatron, dp 2, distributed optimizer": (
        2, ["--micro-batch-size", "2", "--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]),
    "megatron, tp 2": (2, ["--micro-batch-size", "4", "--tensor-model-parallel-size", "2"]),
    "megatron, tp 2, sp": (2, ["--micro-batch-size", "4", "--tensor-model-parallel-size", "2", "--sequence-parallel"]),
}
PEERS = {"DDP, 1 rank": 1, "DDP, 2 ranks": 2}


def ddp_steps(count):
    """One rank of a DistributedDataParallel run, started by torchrun; rank 0 prints its steps' milliseconds."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import GPT2Config, GPT2LMHeadModel

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    model = DistributedDataParallel(GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    times = []
    for _ in range(count + 1):
        ids = torch.randint(0, 50257, (BATCH // dist.get_world_size(), SEQ_LENGTH + 1))
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append((time.perf_counter() - start) * 1e3)
    if dist.get_rank() == 0:
        print(json.dumps(times[1:]))
    dist.destroy_process_group()


def run_ddp(ranks, count):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", __file__, "--ddp-steps", str(count)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def run_megatron(name, count):
    ranks, layout = LAYOUTS[name]
    flags = [*gpt2_124m.FLAGS, "--seq-length", str(SEQ_LENGTH), "--global-batch-size", str(BATCH), *layout, "--train-iters", str(count + 1)]
    command = [gpt2_124m.MEGATRON, "launch", "--nproc-per-node", str(ranks), "--", "pretrain", "gpt", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    times = [float(value) for value in re.findall(r"elapsed time per iteration \(ms\): ([0-9.]+)", done.stdout)]
    if done.returncode != 0 or len(times) != count + 1:
        sys.exit(f"{name} ended with {done.returncode} after {len(times)} iterations:\n{done.stdout}{done.stderr}")
    return times[1:]


def show(result):
    machine = result["machine"]
    print(f"GPT-2 124M, batch {BATCH} x {SEQ_LENGTH}, fp32, one thread a rank, {machine['processor']}, {machine['cores']} cores")
    print(f"{'':40}{'median ms':>11}{'min':>9}{'max':>9}{'x 1 rank':>10}{'x DDP':>8}")
    for name, row in result["runs"].items():
        own = result["runs"]["megatron, 1 rank" if name in LAYOUTS else "DDP, 1 rank"]["median_ms"]
        peer = result["runs"]["DDP, 1 rank" if name.endswith("1 rank") else "DDP, 2 ranks"]["median_ms"]
        print(f"{name:40}{row['median_ms']:11.1f}{row['min_ms']:9.1f}{row['max_ms']:9.1f}{own / row['median_ms']:10.2f}{peer / row['median_ms']:8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often all take turns")
    parser.add_argument("--steps", type=int, default=3, help="counted steps per turn")
    parser.add_argument("--output", type=Path, default=gpt2_124m.ROOT / "bench/results/ranks.json")
    parser.add_argument("--ddp-steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if arguments.ddp_steps:
        ddp_steps(arguments.ddp_steps)
        return
    times = {name: [] for name in (*PEERS, *LAYOUTS)}
    for _ in range(arguments.rounds):
        for name, ranks in PEERS.items():
            times[name] += run_ddp(ranks, arguments.steps)
        for name in LAYOUTS:
            times[name] += run_megatron(name, arguments.steps)
    result = {"machine": gpt2_124m.machine("cpu"), "dtype": "fp32", "rounds": arguments.rounds,
              "runs": {name: gpt2_124m.summary(values) for name, values in times.items()}}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


if __name__ == "__main__":
    main()
