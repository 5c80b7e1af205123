"""Writes tests/optimizer/fixtures/optimizers.json from torch.optim.

It holds trajectories of AdamW and SGD in float64, with Megatron's clipping.

Run with an environment that has torch: `python tests/optimizer/make_optimizer_fixtures.py`.
Two parameters: `weight` is decayed, `bias` is not. Gradients are given per step; `norms` are taken
before clipping.
"""
import json
from pathlib import Path

import torch

OUTPUT = Path(__file__).resolve().parent / "fixtures/optimizers.json"
STEPS = 4
CASES = (
    dict(
        optimizer="adam", lr=0.01, weight_decay=0.1, clip_grad=0.0, beta1=0.9, beta2=0.95, eps=1e-8
    ),
    dict(
        optimizer="adam",
        lr=0.003,
        weight_decay=0.01,
        clip_grad=1.0,
        beta1=0.9,
        beta2=0.999,
        eps=1e-5,
    ),
    dict(optimizer="sgd", lr=0.1, weight_decay=0.1, clip_grad=1.0, momentum=0.9),
    dict(optimizer="sgd", lr=0.1, weight_decay=0.0, clip_grad=0.0, momentum=0.0),
)


def make(case, weight, bias):
    groups = [{"params": [weight]}, {"params": [bias], "weight_decay": 0.0}]
    if case["optimizer"] == "adam":
        return torch.optim.AdamW(
            groups,
            lr=case["lr"],
            betas=(case["beta1"], case["beta2"]),
            eps=case["eps"],
            weight_decay=case["weight_decay"],
        )
    return torch.optim.SGD(
        groups, lr=case["lr"], momentum=case["momentum"], weight_decay=case["weight_decay"]
    )


def evaluate(case):
    generator = torch.Generator().manual_seed(1234)
    draw = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)
    weight, bias = torch.nn.Parameter(draw(3, 5)), torch.nn.Parameter(draw(5))
    result = {"settings": case, "weight": weight.tolist(), "bias": bias.tolist(), "steps": []}
    optimizer = make(case, weight, bias)
    for _ in range(STEPS):
        weight.grad, bias.grad = draw(3, 5), draw(5)
        step = {"weight_grad": weight.grad.tolist(), "bias_grad": bias.grad.tolist()}
        norm = torch.sqrt(weight.grad.pow(2).sum() + bias.grad.pow(2).sum()).item()
        factor = case["clip_grad"] / (norm + 1e-6) if case["clip_grad"] > 0 else 1.0
        if factor < 1:
            weight.grad.mul_(factor), bias.grad.mul_(factor)
        optimizer.step()
        step.update(norm=norm, weight=weight.tolist(), bias=bias.tolist())
        result["steps"].append(step)
    result["state"] = {
        name: value.tolist()
        for name, value in optimizer.state[weight].items()
        if isinstance(value, torch.Tensor) and value.dim() > 0
    }
    return result


OUTPUT.parent.mkdir(parents=True, exist_ok=True)
lines = ",\n".join(json.dumps(evaluate(case)) for case in CASES)
OUTPUT.write_text(
    '{"source": "torch %s", "cases": [\n%s\n]}\n' % (torch.__version__.split("+")[0], lines)
)
