"""Runs one tensor-parallel rank of the real megatron-core.

It gives loss and gradients of variants of mcore_models, with or without sequence parallelism.

    peer_ranks.run("mcore_tensor_parallel.py", DIR, N)

DIR/cases.json lists {"variant", "sequence_parallel", "weights", "rows", "answer"}; weights are
whole tensors by Transformer-Engine name (.npz). Rank 0 writes each answer: the whole gradients, and
"loss".
"""
import os
from types import SimpleNamespace

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu

WORLD_SIZE = int(os.environ["WORLD_SIZE"])
mcore_cpu.init(tp=WORLD_SIZE)

import numpy as np
import torch
import torch.distributed as dist

import mcore_models
import mcore_shards
from megatron.core.distributed.finalize_model_grads import (
    _allreduce_non_tensor_model_parallel_grads,
)

torch.set_num_threads(1)
RANK = int(os.environ["RANK"])


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
        name: mcore_shards.split(name, whole[name], shape, gated, RANK, WORLD_SIZE)
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
    for name, parameter in mcore_models.te_parameters(model).items():
        result[name] = mcore_shards.join(name, gathered(parameter.grad), whole[name].shape, gated)
    if RANK == 0:
        np.savez(directory / case["answer"], **result)


mcore_cpu.answer_cases(answer)
