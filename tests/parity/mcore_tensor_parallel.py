"""Runs one tensor-parallel rank of the real megatron-core.

It gives loss and gradients of variants of mcore_models, with or without sequence parallelism.

    peer_ranks.run("mcore_tensor_parallel.py", DIR, N)

DIR/cases.json lists {"variant", "sequence_parallel", "weights", "rows", "answer"}; weights are
whole tensors by Transformer-Engine name (.npz). Rank 0 writes each answer: the whole gradients, and
"loss".
"""
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu

WORLD_SIZE = int(os.environ["WORLD_SIZE"])
mcore_cpu.init(tp=WORLD_SIZE)

import numpy as np
import torch
import torch.distributed as dist

import mcore_models
from megatron.core.distributed.finalize_model_grads import (
    _allreduce_non_tensor_model_parallel_grads,
)
from megatron.core.transformer.torch_norm import WrappedTorchNorm

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])
plain_norm = WrappedTorchNorm.__new__


def norm_of_a_sequence_part(cls, config, *args, **kwargs):
    """Makes torch's norm, marked as megatron-core marks its own.
    Its gradients are summed over the ranks that share the sequence."""
    sequence_parallel, config.sequence_parallel = config.sequence_parallel, False
    norm = plain_norm(cls, config, *args, **kwargs)
    config.sequence_parallel = sequence_parallel
    for parameter in norm.parameters():
        parameter.sequence_parallel = sequence_parallel
    return norm


WrappedTorchNorm.__new__ = norm_of_a_sequence_part


def split(name, whole, local_shape, gated):
    """Returns this rank's part of a whole tensor.
    Gate and up are split each on their own; else the one dimension that differs has equal parts."""
    if tuple(whole.shape) == tuple(local_shape):
        return whole
    if gated and ".mlp.linear_fc1." in name and "layer_norm" not in name:
        return np.concatenate([np.split(half, WORLD_SIZE)[RANK] for half in np.split(whole, 2)])
    dim = next(i for i, (a, b) in enumerate(zip(whole.shape, local_shape)) if a != b)
    return np.split(whole, WORLD_SIZE, axis=dim)[RANK]


def join(name, parts, whole_shape, gated):
    """The inverse of split. Replicated gradients must be equal on all ranks."""
    if tuple(parts[0].shape) == tuple(whole_shape):
        if any(not np.array_equal(parts[0], part) for part in parts):
            raise ValueError(f"{name}: replicated gradients differ between the ranks")
        return parts[0]
    if gated and ".mlp.linear_fc1." in name and "layer_norm" not in name:
        halves = [np.split(part, 2) for part in parts]
        return np.concatenate([np.concatenate([half[i] for half in halves]) for i in range(2)])
    dim = next(i for i, (a, b) in enumerate(zip(whole_shape, parts[0].shape)) if a != b)
    return np.concatenate(parts, axis=dim)


def gathered(tensor):
    parts = [torch.empty_like(tensor) for _ in range(WORLD_SIZE)]
    dist.all_gather(parts, tensor.contiguous())
    return [part.numpy() for part in parts]


def answer(case, directory):
    variant = next(v for v in mcore_models.variants() if v.name == case["variant"])
    config = dict(
        variant.config,
        tensor_model_parallel_size=WORLD_SIZE,
        sequence_parallel=case["sequence_parallel"],
    )
    mcore_models.VOCAB_SIZE = case["vocab_size"]
    model = mcore_models.build(
        mcore_models.Variant(variant.name, variant.flags, config, variant.model, variant.attributes)
    )
    whole = dict(np.load(directory / case["weights"]))
    gated = config.get("gated_linear_unit", False)
    local = {
        name: split(name, whole[name], shape, gated)
        for name, shape in mcore_models.shapes(model).items()
    }
    if whole.keys() != local.keys():
        raise ValueError(f"other parameters: {sorted(whole.keys() ^ local.keys())}")
    mcore_models.fill(model, local)
    model.ddp_config = SimpleNamespace(use_megatron_fsdp=False)
    model.zero_grad()
    loss = mcore_models.token_losses(model, np.load(directory / case["rows"])).mean()
    loss.backward()
    _allreduce_non_tensor_model_parallel_grads([model], model.config)
    result = {"loss": np.float64(loss.item())}
    for name, parameter in model.named_parameters():
        te_name = mcore_models.te_name(name)
        result[te_name] = join(te_name, gathered(parameter.grad), whole[te_name].shape, gated)
    if RANK == 0:
        np.savez(directory / case["answer"], **result)


def main():
    directory = Path(sys.argv[1])
    for case in json.loads((directory / "cases.json").read_text()):
        answer(case, directory)
    mcore_cpu.finish()


main()
