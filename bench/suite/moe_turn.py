"""Runs one turn of a PyTorch contender on the block of experts, in a process of its own.

It prints what moe_block_bench prints. Before that, `inputs` writes the file that both read.

  moe_turn.py FILE inputs TOKENS HIDDEN FFN EXPERTS TOP_K
  moe_turn.py FILE fp32|bf16 eager|compiled|grouped_mm|transformers|"transformers, eager" STEPS"""
import json
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F

import plain_models


def write_inputs(path, tokens, hidden, ffn, experts, top_k):
    """Writes what both read: the sizes, then the tensors.
    The tensors are the router, every expert's gate and up, every expert's down, the input, and the
    gradient of the output."""
    random = np.random.default_rng(1234)
    with open(path, "wb") as file:
        np.array([tokens, hidden, ffn, experts, top_k], dtype=np.int64).tofile(file)
        for shape, scale in [
            ((experts, hidden), hidden**-0.5),
            ((experts, 2 * ffn, hidden), hidden**-0.5),
            ((experts, hidden, ffn), ffn**-0.5),
            ((tokens, hidden), 1.0),
            ((tokens, hidden), 1.0),
        ]:
            (random.standard_normal(shape, dtype=np.float32) * np.float32(scale)).tofile(file)


def read_inputs(path):
    with open(path, "rb") as file:
        tokens, hidden, ffn, experts, top_k = np.fromfile(file, np.int64, 5)

        def take(*shape):
            return torch.from_numpy(
                np.fromfile(file, np.float32, int(np.prod(shape))).reshape(shape)
            )

        return int(top_k), [
            take(experts, hidden),
            take(experts, 2 * ffn, hidden),
            take(experts, hidden, ffn),
            take(tokens, hidden),
            take(tokens, hidden),
        ]


class GroupedExperts(plain_models.Experts):
    """The same experts by PyTorch's grouped GEMM, on tokens sorted by expert."""

    def forward(self, x):
        shares, chosen = self.route(x)
        order = chosen.flatten().argsort(stable=True)
        token = order // self.top_k
        counts = chosen.flatten().bincount(minlength=len(self.down))
        ends = counts.cumsum(0, dtype=torch.int32)
        gate, up = F.grouped_mm(x[token], self.gate_up.transpose(1, 2), offs=ends).chunk(2, -1)
        y = F.grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)
        return torch.zeros_like(x).index_add_(0, token, y * shares.flatten()[order, None])


def transformers_block(router, gate_up, down, top_k, implementation):
    """Mixtral's block with the same weights, and its parameters in that order."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(
        hidden_size=router.size(1),
        intermediate_size=down.size(2),
        num_local_experts=router.size(0),
        num_experts_per_tok=top_k,
    )
    config._experts_implementation = implementation
    block = MixtralSparseMoeBlock(config).train()
    own = [block.gate.weight, block.experts.gate_up_proj, block.experts.down_proj]
    for parameter, values in zip(own, (router, gate_up, down), strict=True):
        parameter.data = values
    return (lambda x: block(x[None])[0]), own


def fingerprint(tensors):
    return sum(tensor.double().square().sum().sqrt().item() for tensor in tensors)


def main():
    path, dtype, contender, steps = sys.argv[1:]
    top_k, tensors = read_inputs(path)
    router, gate_up, down, x, dy = (
        tensor.bfloat16() if dtype == "bf16" else tensor for tensor in tensors
    )
    if contender.startswith("transformers"):
        loops = contender == "transformers, eager"  # else what from_pretrained chooses
        block, parameters = transformers_block(
            router, gate_up, down, top_k, "eager" if loops else "grouped_mm"
        )
    else:
        kind = GroupedExperts if contender == "grouped_mm" else plain_models.Experts
        block = kind(router, gate_up, down, top_k)
        parameters = list(block.parameters())
        block = torch.compile(block) if contender == "compiled" else block
    x.requires_grad_()
    for _ in range(int(steps)):
        start = time.perf_counter()
        for tensor in (x, *parameters):
            tensor.grad = None
        y = block(x)
        y.backward(dy)
        taken = (time.perf_counter() - start) * 1e3
        print(
            json.dumps(
                {
                    "ms": taken,
                    "loss": fingerprint([y, x.grad, *(parameter.grad for parameter in parameters)]),
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[2] == "inputs":
        write_inputs(sys.argv[1], *map(int, sys.argv[3:]))
    else:
        main()
