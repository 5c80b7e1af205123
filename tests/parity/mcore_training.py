"""Trains a real megatron-core GPT for a few iterations.

It uses megatron-core's own parameter groups and learning-rate schedule, and gives losses, norms and
rates."""
from types import SimpleNamespace

import torch

import mcore_models
from megatron.core.optimizer import _get_param_groups
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

SCHEDULE = dict(
    init_lr=0.0,
    max_lr=3e-3,
    min_lr=3e-4,
    lr_decay_style="cosine",
    start_wd=0.1,
    end_wd=0.1,
    wd_incr_style="constant",
)
CLIP_GRAD, BETAS, EPSILON = 0.5, (0.9, 0.95), 1e-8
FLAGS = [
    "--optimizer",
    "adam",
    "--lr",
    SCHEDULE["max_lr"],
    "--min-lr",
    SCHEDULE["min_lr"],
    "--lr-decay-style",
    "cosine",
    "--weight-decay",
    0.1,
    "--clip-grad",
    CLIP_GRAD,
    "--adam-beta1",
    BETAS[0],
    "--adam-beta2",
    BETAS[1],
    "--adam-eps",
    EPSILON,
]


def gradient_norm(parameters):
    return torch.stack([parameter.grad.double().norm() for parameter in parameters]).norm().item()


def train(model, rows, *, iterations, warmup_iterations, global_batch_size):
    """Trains with AdamW as megatron-core configures it without Apex.
    Megatron-LM's log line shows the rate that follows the step."""
    groups = _get_param_groups(
        [model], None, None, 1.0, SCHEDULE["max_lr"], SCHEDULE["min_lr"], None, None
    )
    optimizer = torch.optim.AdamW(groups, betas=BETAS, eps=EPSILON)
    scheduler = OptimizerParamScheduler(
        optimizer=SimpleNamespace(param_groups=optimizer.param_groups),
        lr_warmup_steps=warmup_iterations * global_batch_size,
        lr_decay_steps=iterations * global_batch_size,
        wd_incr_steps=iterations * global_batch_size,
        **SCHEDULE
    )
    losses, norms, rates = [], [], []
    for iteration in range(iterations):
        batch = rows[iteration * global_batch_size : (iteration + 1) * global_batch_size]
        optimizer.zero_grad()
        loss = mcore_models.token_losses(model, batch).mean()
        loss.backward()
        norms.append(gradient_norm(model.parameters()))
        coefficient = CLIP_GRAD / (norms[-1] + 1e-6)
        if coefficient < 1:
            for parameter in model.parameters():
                parameter.grad.mul_(coefficient)
        optimizer.step()
        scheduler.step(global_batch_size)
        losses.append(loss.item())
        rates.append(optimizer.param_groups[0]["lr"])
    return losses, norms, rates
