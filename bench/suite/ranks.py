"""Times the GPT-2 124M training step (batch 4 × 256 in all, fp32) on one rank and on two, one thread each, turn about: `megatron launch` with
data or tensor parallelism beside PyTorch's DistributedDataParallel over Gloo on the same model. Prints medians, the gain from the second rank and
the ratio to DistributedDataParallel."""
import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import cases
import commands
import inputs
import machine
import measure
import turns

CASE = cases.GPT2_STEP
DISTRIBUTED = {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
LAYOUTS = {
    "megatron, 1 rank": {"ranks": 1},
    "megatron, dp 2": {"ranks": 2, "micro_batch_size": 2, "overlap_grad_reduce": True},
    "megatron, dp 2, distributed optimizer": {"ranks": 2, "micro_batch_size": 2, **DISTRIBUTED},
    "megatron, tp 2": {"ranks": 2, "micro_batch_size": 4, "tensor_model_parallel_size": 2},
    "megatron, tp 2, sp": {"ranks": 2, "micro_batch_size": 4, "tensor_model_parallel_size": 2, "sequence_parallel": True},
}
PEERS = {"DDP, 1 rank": 1, "DDP, 2 ranks": 2}


def ddp_steps(count):
    """One rank of a DistributedDataParallel run, started by torchrun; rank 0 prints a line per step, as torch_turn.py does."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import GPT2Config, GPT2LMHeadModel

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    model = DistributedDataParallel(GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    for _ in range(count):
        ids = torch.randint(0, CASE.model.vocab, (CASE.batch // dist.get_world_size(), CASE.seq + 1))
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(json.dumps({"ms": (time.perf_counter() - start) * 1e3, "loss": None}), flush=True)
    dist.destroy_process_group()


def commands_of(work, steps):
    """{name: command} of all that take turns."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ddp = {name: [*torchrun, f"--nproc-per-node={ranks}", __file__, "--ddp-steps", str(steps)] for name, ranks in PEERS.items()}
    return ddp | {name: commands.our_step(CASE, "fp32", work, steps, **layout) for name, layout in LAYOUTS.items()}


def show(result):
    where = result["machine"]
    print(f"{CASE.model.name}, {CASE.batch} × {CASE.seq}, fp32, one thread a rank, {where['processor']}, {where['cores']} cores")
    print(f"{'':40}{'median ms':>11}{'min':>9}{'max':>9}{'x 1 rank':>10}{'x DDP':>8}")
    for name, row in result["runs"].items():
        own = result["runs"]["megatron, 1 rank" if name in LAYOUTS else "DDP, 1 rank"]["median_ms"]
        peer = result["runs"]["DDP, 1 rank" if name.endswith("1 rank") else "DDP, 2 ranks"]["median_ms"]
        print(f"{name:40}{row['median_ms']:11.1f}{row['min_ms']:9.1f}{row['max_ms']:9.1f}{own / row['median_ms']:10.2f}{peer / row['median_ms']:8.2f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often all take turns")
    parser.add_argument("--steps", type=int, default=3, help="counted steps per turn")
    parser.add_argument("--output", type=Path, default=inputs.ROOT / "bench/results/ranks.json")
    parser.add_argument("--ddp-steps", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    steps = arguments.steps + 1
    if arguments.ddp_steps:
        ddp_steps(arguments.ddp_steps)
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        inputs.make_inputs(work, CASE, steps)
        runs = {name: measure.Run(name, lambda name=name, command=command: turns.watch(commands.Turn(command), steps, 1, name, work))
                for name, command in commands_of(work, steps).items()}
        progress = measure.Progress(run for run in runs.values() for _ in range(arguments.rounds))
        result = {"machine": machine.describe(), "dtype": "fp32", "rounds": arguments.rounds, "runs": measure.measure(runs, arguments.rounds, progress)}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


if __name__ == "__main__":
    main()
