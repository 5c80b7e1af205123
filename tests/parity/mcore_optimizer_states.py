"""Trains on one rank of the real megatron-core with its own optimizers, on a CPU, and saves.

A case of mcore_checkpoints.py has an "optimizer": "fp32", or the name of a form in which its
distributed optimizer saves its state. The model trains on DIR/rows.npy for three iterations, is
saved, and trains for two more, whose losses stand in DIR/FOLDER.npy."""
import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer

import mcore_checkpoints
import mcore_models
import mcore_moe

GLOBAL_BATCH_SIZE, MICRO_BATCH_SIZE, NUM_MORE = 4, 2, 2
LEARNING_RATE, WEIGHT_DECAY, BETAS, EPSILON = 3e-3, 0.1, (0.9, 0.95), 1e-8
FLAGS = [
    *["--micro-batch-size", MICRO_BATCH_SIZE, "--global-batch-size", GLOBAL_BATCH_SIZE],
    *["--optimizer", "adam", "--lr", LEARNING_RATE, "--lr-decay-style", "constant"],
    *["--weight-decay", WEIGHT_DECAY, "--clip-grad", 0],
    *["--adam-beta1", BETAS[0], "--adam-beta2", BETAS[1], "--adam-eps", EPSILON],
]
torch.tensor = mcore_models.on_cpu(torch.tensor)
plain_type = torch.Tensor.type


def type_on_a_device(tensor, *arguments, **settings):
    """Names a tensor's type as that of a CUDA tensor, which the optimizers ask for."""
    named = plain_type(tensor, *arguments, **settings)
    return named.replace("torch.", "torch.cuda.") if isinstance(named, str) else named


torch.Tensor.type = type_on_a_device


plain_states = DistributedOptimizer._get_main_param_and_optimizer_states


def states_without_step(optimizer, parameter):
    """Drops the number of steps, which Apex's Adam does not keep for each parameter. With it,
    megatron-core cannot save in the form dp_reshardable."""
    states = plain_states(optimizer, parameter)
    return {name: state for name, state in states.items() if name != "step"}


DistributedOptimizer._get_main_param_and_optimizer_states = states_without_step


def train(model, optimizer, rows):
    """Returns the mean loss over the data-parallel ranks."""
    optimizer.zero_grad()
    loss, _ = mcore_moe.step(model, rows, MICRO_BATCH_SIZE)
    optimizer.step()
    mean = torch.tensor([loss])
    torch.distributed.all_reduce(mean, group=parallel_state.get_data_parallel_group())
    return mean.item() / parallel_state.get_data_parallel_world_size()


def scheduler_state(num_samples):
    """What megatron-core's OptimizerParamScheduler saves."""
    return {
        "max_lr": LEARNING_RATE,
        "lr_warmup_steps": 0,
        "num_steps": num_samples,
        "lr_decay_style": "constant",
        "lr_decay_steps": 40,
        "min_lr": 0.0,
        "start_wd": WEIGHT_DECAY,
        "end_wd": WEIGHT_DECAY,
        "wd_incr_style": "constant",
        "wd_incr_steps": 40,
    }


def answer(case, directory, model, args, folder):
    is_distributed = case["optimizer"] != "fp32"
    plain = getattr(model, "module", model)
    wrapped = DistributedDataParallel(
        plain.config,
        DistributedDataParallelConfig(use_distributed_optimizer=is_distributed),
        plain,
    )
    config = OptimizerConfig(
        optimizer="adam",
        lr=LEARNING_RATE,
        min_lr=LEARNING_RATE,
        weight_decay=WEIGHT_DECAY,
        adam_beta1=BETAS[0],
        adam_beta2=BETAS[1],
        adam_eps=EPSILON,
        clip_grad=0.0,
        use_distributed_optimizer=is_distributed,
    )
    optimizer = get_megatron_optimizer(config, [wrapped])
    for group in optimizer.param_groups:  # as the scheduler of megatron-core does at each step
        group["weight_decay"] = WEIGHT_DECAY * group["wd_mult"]
    batches = np.split(np.load(directory / "rows.npy"), mcore_checkpoints.ITERATION + NUM_MORE)
    before, after = np.split(np.array(batches), [mcore_checkpoints.ITERATION])
    for batch in before:
        train(wrapped, optimizer, batch)
    state = mcore_checkpoints.common_state(args)
    state["opt_param_scheduler"] = scheduler_state(len(before) * GLOBAL_BATCH_SIZE)
    metadata = {"distrib_optim_sharding_type": case["optimizer"]} if is_distributed else None
    mcore_checkpoints.save_torch_dist(case, folder, [wrapped], state, metadata, optimizer)
    losses = [train(wrapped, optimizer, batch) for batch in after]
    if mcore_checkpoints.RANK == 0:
        np.save(directory / f"{case['folder']}.npy", losses)
