"""The experts of GPT-OSS from our operators against GptOssExperts of transformers.

Its formula f(gate)·(up + 1) with clamp 7 is that of --quick-geglu --activation-func-clamp-value 7
--glu-linear-offset 1. Its columns alternate between gate and up, where ours are [gate | up]."""
import sys

import torch
from transformers import GptOssConfig
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

from ops_parity import KINDS, LIBRARY, numbers
from report import Report

EXPERTS, TOPK, TOKENS, HIDDEN, WIDTH = 6, 2, 40, 24, 32
CLAMP, OFFSET = 7.0, 1.0


class GroupedLinear(torch.autograd.Function):
    """y_g = x_g·w_g for rows sorted by expert."""

    @staticmethod
    def forward(context, x, weight, rows):
        context.save_for_backward(x, weight)
        context.rows = rows
        return torch.ops.megatron.grouped_matmul(x, weight, rows, None, x.dtype)

    @staticmethod
    def backward(context, dy):
        x, weight = context.saved_tensors
        dweight = torch.empty_like(weight)
        dx = torch.ops.megatron.grouped_matmul(dy, weight.mT, context.rows, None, dy.dtype)
        torch.ops.megatron.grouped_matmul_over_rows_out(dweight, x, dy, context.rows, False)
        return dx, dweight, None


class ClampedGate(torch.autograd.Function):
    """weights·f(gate)·(up + offset) for rows [gate | up]."""

    FORM = (CLAMP, OFFSET)

    @staticmethod
    def forward(context, x, weights):
        context.save_for_backward(x, weights)
        return torch.ops.megatron.bias_activation(
            x, None, KINDS["quick_gelu"], True, *ClampedGate.FORM, weights
        )

    @staticmethod
    def backward(context, dy):
        x, weights = context.saved_tensors
        dx, _, _, dweights = torch.ops.megatron.bias_activation_backward(
            dy.contiguous(), x, None, KINDS["quick_gelu"], True, *ClampedGate.FORM, False, weights
        )
        return dx, dweights


def gate_before_up(columns):
    return torch.cat((columns[..., ::2], columns[..., 1::2]), -1)


def our_experts(module, x, choices, probs):
    order = choices.flatten().argsort(stable=True)
    experts, tokens = choices.flatten()[order], order // TOPK
    weights, rows = probs.flatten()[order], experts.bincount(minlength=EXPERTS).tolist()
    projected = GroupedLinear.apply(x[tokens], gate_before_up(module.gate_up_proj), rows)
    projected = projected + gate_before_up(module.gate_up_proj_bias)[experts]
    y = GroupedLinear.apply(ClampedGate.apply(projected, weights), module.down_proj, rows)
    y = y + weights.unsqueeze(1) * module.down_proj_bias[experts]
    return torch.zeros_like(x).index_add(0, tokens, y), projected


def clamped_share(projected):
    gate, up = projected.detach().chunk(2, -1)
    return torch.cat((gate > CLAMP, up.abs() > CLAMP)).float().mean().item()


def main():
    torch.ops.load_library(LIBRARY)
    report = Report()
    module = GptOssExperts(
        GptOssConfig(hidden_size=HIDDEN, intermediate_size=WIDTH, num_local_experts=EXPERTS)
    )
    for seed, parameter in enumerate(module.parameters()):
        torch.nn.init.normal_(parameter, generator=torch.Generator().manual_seed(seed))
    x = numbers(TOKENS, HIDDEN, seed=7).requires_grad_()
    scores, choices = numbers(TOKENS, EXPERTS, seed=8).topk(TOPK)
    probs = scores.softmax(-1).requires_grad_()
    inputs = {"x": x, "probabilities": probs, **dict(module.named_parameters())}
    theirs = module(x, choices, probs)
    ours, projected = our_experts(module, x, choices, probs)
    share = clamped_share(projected)
    report.result("the clamp limits some numbers", 0.02 < share < 0.5, f"{share:.3f}")
    report.close("GptOssExperts", ours.detach(), theirs.detach())
    dy = numbers(TOKENS, HIDDEN, seed=9)
    gradients = [
        dict(zip(inputs, torch.autograd.grad(y, list(inputs.values()), dy))) for y in (ours, theirs)
    ]
    report.close_tensors("GptOssExperts, gradients", *gradients)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
