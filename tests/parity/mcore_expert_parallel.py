"""Runs one rank of the real megatron-core with experts, in any layout over tp, ep and dp.

    peer_ranks.run("mcore_expert_parallel.py", DIR, N)

DIR/cases.json lists {"variant", "tp", "ep", "etp", "dispatcher", "vocab_size", "micro_batch_size",
"weights", "rows", "answer"}; weights are whole tensors with the names of our checkpoints (.npz).
Rank 0 writes each answer: the whole gradients, expert biases after the step, "loss", and the
auxiliary losses as "loss <name>".
"""
import os

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
import mcore_cpu

parallel_state = mcore_cpu.init()

import numpy as np
import torch
import torch.distributed as dist

import mcore_models
import mcore_moe
import mcore_moe_models
import mcore_shards

torch.set_num_threads(1)
RANK, WORLD_SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def enter_layout(case):
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=case["tp"],
        expert_model_parallel_size=case["ep"],
        expert_tensor_parallel_size=case["etp"],
    )


def split_for_this_rank(gated):
    """A function for mcore_moe.fill()."""

    def split(name, whole, local_shape):
        is_expert = ".mlp.experts." in name
        rank, ranks = (
            (
                parallel_state.get_expert_tensor_parallel_rank(),
                parallel_state.get_expert_tensor_parallel_world_size(),
            )
            if is_expert
            else (
                parallel_state.get_tensor_model_parallel_rank(),
                parallel_state.get_tensor_model_parallel_world_size(),
            )
        )
        return mcore_shards.split(name, whole, local_shape, gated, rank, ranks)

    return split


def whole_gradients(ranks, whole, gated):
    """Joins what each rank has: name → [(expert or None, part)]."""
    gradients = {}
    for name in whole:
        parts = {}
        for rank in ranks:
            for expert, part in rank[name]:
                parts.setdefault(expert, []).append(part)
        gradients[name] = mcore_moe.stacked(
            [
                (
                    expert,
                    mcore_shards.join(
                        name, shards, mcore_moe.part_of(whole[name], expert).shape, gated
                    ),
                )
                for expert, shards in parts.items()
            ]
        )
    return gradients


def gathered(mine):
    ranks = [None] * WORLD_SIZE
    dist.all_gather_object(ranks, mine)
    return ranks


def coefficients(config):
    """The coefficients of the auxiliary losses, for this number of replicas.
    megatron-core 0.15 divides each replica's part of global_aux_loss by the tokens of all, and then
    averages the gradients of the replicas besides, so that the loss is as weak as they are many."""
    kinds, values = (
        config.get(f"moe_{key}") for key in ("router_load_balancing_type", "aux_loss_coeff")
    )
    if kinds is None or values is None:
        return {}
    factors = {"global_aux_loss": parallel_state.get_data_parallel_world_size()}
    if isinstance(kinds, str):
        return dict(moe_aux_loss_coeff=values * factors.get(kinds, 1))
    return dict(moe_aux_loss_coeff=[v * factors.get(kind, 1) for kind, v in zip(kinds, values)])


def answer(case, directory):
    enter_layout(case)
    variant = mcore_moe_models.variant_of(case["variant"])
    gated = variant.config.get("gated_linear_unit", False)
    mcore_models.VOCAB_SIZE = case["vocab_size"]
    model = mcore_moe.build(
        variant,
        tensor_model_parallel_size=case["tp"],
        sequence_parallel=case["tp"] > 1,
        expert_model_parallel_size=case["ep"],
        expert_tensor_parallel_size=case["etp"],
        moe_token_dispatcher_type=case["dispatcher"],
        **coefficients(variant.config),
    )
    whole = dict(np.load(directory / case["weights"]))
    mcore_moe.fill(model, whole, split_for_this_rank(gated))
    loss, aux_losses = mcore_moe.step(
        model, np.load(directory / case["rows"]), case["micro_batch_size"]
    )
    result = whole_gradients(gathered(mcore_moe.own_gradients(model)), whole, gated)
    result["loss"] = np.mean(gathered(loss))
    result.update({f"loss {name}": value for name, value in aux_losses.items()})
    if RANK == 0:
        np.savez(directory / case["answer"], **result)


mcore_cpu.answer_cases(answer)
