"""Times the GPT-2 124M training step (batch 4 × 256 in all, fp32) on one rank and on two.

Each rank has one thread, and the contenders take turns. They are `megatron launch` with data or
tensor parallelism, PyTorch's DistributedDataParallel over Gloo on the same model, and one rank that
has both threads. The program prints medians, the gain from the second rank and the ratio to
DistributedDataParallel; --dtype bf16 and --only narrow it down."""
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
DISTRIBUTED = {
    "use_distributed_optimizer": True,
    "overlap_grad_reduce": True,
    "overlap_param_gather": True,
}
LAYOUTS = {
    "megatron, 1 rank": {"ranks": 1},
    "megatron, 1 rank, 2 threads": {"ranks": 1},
    "megatron, dp 2": {"ranks": 2, "micro_batch_size": 2, "overlap_grad_reduce": True},
    "megatron, dp 2, distributed optimizer": {"ranks": 2, "micro_batch_size": 2, **DISTRIBUTED},
    "megatron, tp 2": {"ranks": 2, "micro_batch_size": 4, "tensor_model_parallel_size": 2},
    "megatron, tp 2, sp": {
        "ranks": 2,
        "micro_batch_size": 4,
        "tensor_model_parallel_size": 2,
        "sequence_parallel": True,
    },
}
PEERS = {"DDP, 1 rank": 1, "DDP, 2 ranks": 2}


def ddp_steps(count):
    """Runs one rank of a DistributedDataParallel run, which torchrun starts.
    Rank 0 prints a line per step, as torch_turn.py does."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from transformers import GPT2Config, GPT2LMHeadModel

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1234)
    model = DistributedDataParallel(
        GPT2LMHeadModel(GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)).train()
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    for _ in range(count):
        ids = torch.randint(
            0, CASE.model.vocab, (CASE.batch // dist.get_world_size(), CASE.seq + 1)
        )
        dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids[:, :-1], use_cache=False).logits
        torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), ids[:, 1:].flatten()
        ).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if dist.get_rank() == 0:
            print(json.dumps({"ms": (time.perf_counter() - start) * 1e3, "loss": None}), flush=True)
    dist.destroy_process_group()


def turns_of(work, steps, dtype, only):
    """{name: Turn} of all that take turns; DistributedDataParallel in fp32 only."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    ddp = {
        name: commands.Turn(
            [*torchrun, f"--nproc-per-node={ranks}", __file__, "--ddp-steps", str(steps)]
        )
        for name, ranks in PEERS.items()
        if dtype == "fp32"
    }
    ours = {
        name: commands.Turn(
            commands.our_step(CASE, dtype, work, steps, **layout),
            {"OMP_NUM_THREADS": "2" if "2 threads" in name else "1"},
        )
        for name, layout in LAYOUTS.items()
    }
    return {
        name: turn
        for name, turn in (ddp | ours).items()
        if not only or any(word in name for word in only)
    }


def show(result):
    where = result["machine"]
    print(
        f"{CASE.model.name}, {CASE.batch} × {CASE.seq}, {result['dtype']}, one thread a rank, "
        f"{where['cpu']}, {where['cores']} cores"
    )
    print(
        f"{'':40}{'median ms':>11}{'min':>9}{'max':>9}{'x 1 rank':>10}{'x 2 thr.':>10}{'x DDP':>8}"
    )
    runs = result["runs"]

    def ratio(to, row):
        return f"{runs[to]['median_ms'] / row['median_ms']:.2f}" if to in runs else ""

    for name, row in runs.items():
        own = ratio("megatron, 1 rank" if name in LAYOUTS else "DDP, 1 rank", row)
        threads = ratio("megatron, 1 rank, 2 threads", row) if name in LAYOUTS else ""
        peer = ratio("DDP, 1 rank" if name.endswith("1 rank") else "DDP, 2 ranks", row)
        print(
            f"{name:40}{row['median_ms']:11.1f}{row['min_ms']:9.1f}{row['max_ms']:9.1f}"
            f"{own:>10}{threads:>10}{peer:>8}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often all take turns")
    parser.add_argument("--steps", type=int, default=3, help="counted steps per turn")
    parser.add_argument("--dtype", choices=cases.DTYPES, default="fp32")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        help="only the lines whose name contains this; repeated: or this",
    )
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
        runs = {
            name: measure.Run(
                name, lambda name=name, turn=turn: turns.watch(turn, steps, 1, name, work)
            )
            for name, turn in turns_of(work, steps, arguments.dtype, arguments.only).items()
        }
        progress = measure.Progress(run for run in runs.values() for _ in range(arguments.rounds))
        result = {
            "machine": machine.describe(),
            "dtype": arguments.dtype,
            "rounds": arguments.rounds,
            "runs": measure.measure(runs, arguments.rounds, progress),
        }
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    show(result)


if __name__ == "__main__":
    main()
