"""Runs one rank of the real megatron-core that loads our torch_dist folders and trains on.

    peer_ranks.run("mcore_loads.py", DIR, N)

Cases are those of mcore_checkpoints.py, whose "folder" is ours. Rank 0 writes the losses of each
token of DIR/rows.npy[:EVALUATED] and those of the next steps to DIR/ANSWER.npz."""
import mcore_checkpoints  # before other imports: it initializes megatron-core
import mcore_optimizer_states as training
import numpy as np
import torch
from megatron.core import dist_checkpointing
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

import mcore_cpu
import mcore_models
import mcore_moe

EVALUATED = 3
METADATA = {
    "distrib_optim_sharding_type": "fully_reshardable",
    "chained_optim_avoid_prefix": True,
}


plain_set = DistributedOptimizer._set_main_param_and_optimizer_states


def set_states_but_step(optimizer, parameter, tensors):
    """Leaves the number of steps as the group of parameters set it. Apex's Adam keeps none for each
    parameter. PyTorch's does: megatron-core looks for it in vain, and gives all the same tensor, to
    which each then adds."""
    group, order = optimizer.model_param_group_index_map[parameter]
    state = optimizer.optimizer.state[optimizer.optimizer.param_groups[group]["params"][order]]
    state["step"] = state["step"].clone()
    plain_set(optimizer, parameter, {**tensors, "step": state["step"]})


DistributedOptimizer._set_main_param_and_optimizer_states = set_states_but_step


def name_norms_of_experts(model):
    """The local layers of megatron-core name the norm before experts as that of an MLP; with
    Transformer Engine, it has a name of its own."""
    for layer in model.decoder.layers:
        if isinstance(layer.mlp, mcore_moe.MoELayer):
            layer.submodules_config.sharded_state_dict_keys_map.pop("pre_mlp_layernorm.", None)


def optimizer_of(model):
    wrapped = DistributedDataParallel(
        model.config, DistributedDataParallelConfig(use_distributed_optimizer=True), model
    )
    config = OptimizerConfig(
        optimizer="adam",
        lr=training.LEARNING_RATE,
        min_lr=training.LEARNING_RATE,
        weight_decay=training.WEIGHT_DECAY,
        adam_beta1=training.BETAS[0],
        adam_beta2=training.BETAS[1],
        adam_eps=training.EPSILON,
        clip_grad=0.0,
        use_distributed_optimizer=True,
    )
    return wrapped, get_megatron_optimizer(config, [wrapped])


def load(folder, model, optimizer):
    """Loads a folder as Megatron-LM does; returns the keys that nobody asked for, which
    megatron-core calls missing. Those that it asked for in vain are unexpected."""
    state = {"model": model.sharded_state_dict(metadata=METADATA)}
    if optimizer is not None:
        state["optimizer"] = optimizer.sharded_state_dict(
            dict(state), is_loading=True, metadata=METADATA
        )
    loaded, unasked, lacking = dist_checkpointing.load(
        state, str(folder), strict=dist_checkpointing.validation.StrictHandling.RETURN_ALL
    )
    if lacking:
        raise ValueError(f"our folder lacks {sorted(lacking)[:5]}")
    model.load_state_dict(loaded["model"])
    if optimizer is not None:
        optimizer.load_state_dict(loaded["optimizer"])
    return unasked


def answer(case, directory):
    mcore_checkpoints.enter_layout(case)
    made = mcore_checkpoints.build(case, 0)
    model = getattr(made, "module", made)
    name_norms_of_experts(model)
    wrapped, optimizer = optimizer_of(model) if case["next"] else (None, None)
    rows = np.load(directory / "rows.npy")
    if optimizer is not None:  # without Apex it has no state to load before its first step
        training.train(wrapped, optimizer, rows[: training.GLOBAL_BATCH_SIZE])
    unasked = load(directory / case["folder"], model, optimizer)
    with torch.no_grad():
        model.eval()
        losses = mcore_models.token_losses(model, rows[:EVALUATED]).numpy()
    answers = {"losses": losses, "unasked": sorted(unasked)}
    if optimizer is not None:
        model.train()
        batches = np.split(rows, len(rows) // training.GLOBAL_BATCH_SIZE)
        answers["next"] = [
            training.train(wrapped, optimizer, batch)
            for batch in batches[mcore_checkpoints.ITERATION :]
        ]
    if mcore_checkpoints.RANK == 0:
        np.savez(directory / case["answer"], **answers)


if __name__ == "__main__":
    mcore_cpu.answer_cases(answer)
