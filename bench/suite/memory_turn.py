"""Runs one turn of PyTorch for small_memory.py, and prints a JSON line per training step.

By itself it is one rank in bf16 autocast. Under torchrun it is a rank of FSDP2 over Gloo: fp32
weights, sharded by layer and gathered in bf16, whose gradients are reduced in fp32.

  memory_turn.py CASE plain|transformers WORK STEPS [checkpoint]"""
import os
import sys

RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


def pin():
    """Gives each rank its share of the CPUs, as `megatron launch` does."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) >= RANKS > 1:
        os.sched_setaffinity(0, cpus[RANK * len(cpus) // RANKS : (RANK + 1) * len(cpus) // RANKS])


pin()  # before PyTorch starts threads
import contextlib  # noqa: E402
import ctypes  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (  # noqa: E402
    checkpoint_wrapper,
)
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: E402

import cases  # noqa: E402
import inputs  # noqa: E402
import torch_turn  # noqa: E402
import turns  # noqa: E402


def build(kind, case, work, checkpointed):
    """The model, the list of its layers, and its forward to logits. Checkpointed layers are wrapped
    before they are sharded, so that a layer is gathered once for its recomputation and backward."""
    contender = "eager" if kind == "plain" else kind
    model, forward = torch_turn.build(contender, case, inputs.weights_folder(work, case))
    layers = model.blocks if kind == "plain" else model.model.layers
    if checkpointed:
        for index, layer in enumerate(layers):
            layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False)
    return model, layers, forward


def shard(model, layers):
    policy = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # rope's tables stay fp32; activations are bf16 already
    )
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    for module in [*layers, model]:
        fully_shard(module, mesh=mesh, mp_policy=policy)


def train(case, rows, model, loss_of):
    """Yields (milliseconds, loss) of each step; the loss is the mean over all ranks."""
    optimizer = torch_turn.make_optimizer(model)
    share = case.batch // RANKS
    for first in range(RANK * share, len(rows), case.batch):
        start = time.perf_counter()
        ids = rows[first : first + share]
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cases.CLIP)
        optimizer.step()
        mean = loss.detach() / RANKS
        if RANKS > 1:
            dist.all_reduce(mean)
        value = mean.item()
        yield (time.perf_counter() - start) * 1e3, value


def main():
    name, kind, work, steps, *checkpointed = sys.argv[1:]
    case, work = cases.case_named(name), Path(work)
    if RANKS > 1:
        dist.init_process_group("gloo")
    # The program by itself: its libraries are loaded, and there is no model yet.
    before = {"before_model_bytes": turns.peak_bytes("self")}
    rows = torch.from_numpy(np.load(inputs.tokens_file(work, case)))[: int(steps) * case.batch]
    model, layers, forward = build(kind, case, work, checkpointed)
    if RANKS > 1:
        shard(model, layers)
    # What was needed to load the weights is no part of training.
    ctypes.CDLL(None).malloc_trim(0)
    autocast = (
        contextlib.nullcontext()  # the sharded weights are gathered in bf16
        if RANKS > 1
        else torch.autocast("cpu", torch.bfloat16)
    )

    def loss_of(ids):
        with autocast:
            logits = forward(ids[:, :-1]).flatten(0, 1)
            return F.cross_entropy(logits.float(), ids[:, 1:].flatten())

    if RANK == 0:
        print(json.dumps(before), flush=True)
    for ms, loss in train(case, rows, model, loss_of):
        if RANK == 0:
            print(json.dumps({"ms": ms, "loss": loss}), flush=True)
    if RANKS > 1:
        # destroy_process_group() sometimes ends a process of FSDP2 over Gloo with an abort (torch
        # 2.11: "terminate called without an active exception"). All results are printed by now.
        dist.barrier()
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
