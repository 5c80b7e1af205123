"""Runs one turn of a PyTorch contender, in a process of its own.

It prints one JSON line per training step with its milliseconds and its loss.

  torch_turn.py CASE DTYPE eager|compiled|transformers WORK|fresh STEPS"""
import contextlib
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import cases
import inputs
import plain_models


def build(contender, case, weights):
    """The model with the shared weights (none: fresh ones), and its forward to logits."""
    if contender == "transformers":
        from transformers import AutoModelForCausalLM

        model = (
            AutoModelForCausalLM.from_pretrained(weights, dtype=torch.float32)
            .train()
            .to(case.device)
        )
        return model, lambda ids: model(ids, use_cache=False).logits
    model = plain_models.plain_model(case.model).train()
    if weights is not None:
        model.load(load_file(weights / "model.safetensors"))
    model.to(case.device)
    return model, model


def make_optimizer(model):
    """Decay on matrices only, as Megatron does."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": cases.WEIGHT_DECAY},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(
        groups, lr=cases.LEARNING_RATE, betas=cases.BETAS, eps=cases.EPSILON, fused=True
    )


def main():
    name, dtype, contender, work, steps = sys.argv[1:]
    case, steps = cases.case_named(name), int(steps)
    fresh = work == "fresh"
    rows = (
        torch.randint(case.model.vocab, (steps * case.batch, case.seq + 1))
        if fresh
        else torch.from_numpy(np.load(inputs.tokens_file(Path(work), case)))
    )
    model, forward = build(
        contender, case, None if fresh else inputs.weights_folder(Path(work), case)
    )
    optimizer = make_optimizer(model)

    def loss_of(ids):
        return F.cross_entropy(forward(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    if contender == "compiled":
        loss_of = torch.compile(loss_of)
    for step in range(steps):
        start = time.perf_counter()
        ids = rows[step * case.batch : (step + 1) * case.batch].to(case.device)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(
            case.device, torch.bfloat16
        ) if dtype == "bf16" else contextlib.nullcontext():
            loss = loss_of(ids)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), cases.CLIP)
        optimizer.step()
        value = loss.item()
        if case.device == "cuda":
            torch.cuda.synchronize()
        print(json.dumps({"ms": (time.perf_counter() - start) * 1e3, "loss": value}), flush=True)


if __name__ == "__main__":
    main()
