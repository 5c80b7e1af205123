"""Runs one turn of transformers' Mamba2Mixer or Qwen3NextGatedDeltaNet, in a process of its own.

It prints what attention_block_bench prints. Before that, `inputs` writes the file that both read:
the sizes, the weights under our names in their order, the input and the gradient of the output.

  recurrent_turn.py FILE inputs mamba2|gated_delta_net LENGTH HIDDEN GROUPS HEADS KEY VALUE TAPS
  recurrent_turn.py FILE fp32|bf16 STEPS"""
import math
import sys

import numpy as np
import torch
from latent_turn import norm_of, now, print_step

KINDS = ("mamba2", "gated_delta_net")
CHUNK = 64  # of transformers' scan of Mamba-2: less time and memory than with its own 256
DELTA_PROJECTIONS = ("in_proj_qkvz.weight", "in_proj_ba.weight")


def projection_blocks(kind, groups, heads, key_dim, value_dim):
    """The rows of our input projection: z|x|B|C|dt, or q|k|v|z|beta|alpha."""
    keys, values = groups * key_dim, heads * value_dim
    if kind == "mamba2":
        return [values, values, keys, keys, heads]
    return [keys, keys, values, values, heads, heads]


def weight_shapes(kind, hidden, groups, heads, key_dim, value_dim, taps):
    """The weights of a layer under our names, sorted as ParamStore does."""
    values = heads * value_dim
    convolved = 2 * groups * key_dim + values
    rows = sum(projection_blocks(kind, groups, heads, key_dim, value_dim))
    shapes = {
        "A_log": (heads,),
        "conv1d.weight": (convolved, 1, taps),
        "dt_bias": (heads,),
        "in_proj.weight": (rows, hidden),
        "out_proj.weight": (hidden, values),
    }
    if kind == "mamba2":
        shapes |= {"D": (heads,), "conv1d.bias": (convolved,), "norm.weight": (values,)}
    else:
        shapes["out_norm.weight"] = (value_dim,)
    return dict(sorted(shapes.items()))


def weight_values(random, name, shape):
    """Initial values, of A_log and dt_bias as Mamba-2's."""
    if name == "A_log":
        return np.log(random.uniform(1, 16, shape))
    if name == "dt_bias":
        step = np.exp(random.uniform(np.log(0.001), np.log(0.1), shape))
        return np.log(np.expm1(step))
    values = random.standard_normal(shape, dtype=np.float32)
    if len(shape) > 1:
        return values * shape[-1] ** -0.5
    return 0.1 * values + (name != "conv1d.bias")


def write_inputs(path, kind, length, hidden, *sizes):
    random = np.random.default_rng(1234)
    with open(path, "wb") as file:
        np.array([KINDS.index(kind), length, hidden, *sizes], dtype=np.int64).tofile(file)
        for name, shape in weight_shapes(kind, hidden, *sizes).items():
            weight_values(random, name, shape).astype(np.float32).tofile(file)
        for _ in range(2):
            random.standard_normal((length, hidden), dtype=np.float32).tofile(file)


def mamba2(hidden, groups, heads, key_dim, value_dim, taps):
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(
        hidden_size=hidden,
        num_heads=heads,
        head_dim=value_dim,
        expand=heads * value_dim // hidden,
        state_size=key_dim,
        n_groups=groups,
        conv_kernel=taps,
        chunk_size=CHUNK,
        num_hidden_layers=1,
    )
    return Mamba2Mixer(config, layer_idx=0)


def gated_delta_net(hidden, groups, heads, key_dim, value_dim, taps):
    from transformers import Qwen3NextConfig
    from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet

    config = Qwen3NextConfig(
        hidden_size=hidden,
        linear_num_key_heads=groups,
        linear_num_value_heads=heads,
        linear_key_head_dim=key_dim,
        linear_value_head_dim=value_dim,
        linear_conv_kernel_dim=taps,
    )
    return Qwen3NextGatedDeltaNet(config, layer_idx=0)


def their_weights(kind, weights, groups, heads, key_dim, value_dim):
    """Qwen3-Next has the projections of each head of keys and its values side by side."""
    if kind == "mamba2":
        return weights
    blocks = projection_blocks(kind, groups, heads, key_dim, value_dim)
    parts = [
        part.unflatten(0, (groups, -1)) for part in weights.pop("in_proj.weight").split(blocks)
    ]
    weights["norm.weight"] = weights.pop("out_norm.weight")
    for name, own in zip(DELTA_PROJECTIONS, (parts[:4], parts[4:]), strict=True):
        weights[name] = torch.cat(own, 1).flatten(0, 1)
    return weights


def read_layer(file, dtype):
    """The layer of a file, its input and the gradient of its output."""

    def take(*shape):
        values = np.fromfile(file, np.float32, math.prod(shape)).reshape(shape)
        return torch.from_numpy(values).to(dtype)

    which, length, hidden, *sizes = map(int, np.fromfile(file, np.int64, 8))
    kind = KINDS[which]
    weights = {name: take(*shape) for name, shape in weight_shapes(kind, hidden, *sizes).items()}
    block = {"mamba2": mamba2, "gated_delta_net": gated_delta_net}[kind](hidden, *sizes).to(dtype)
    block.load_state_dict(their_weights(kind, weights, *sizes[:-1]))
    return block.train(), take(1, length, hidden), take(1, length, hidden)


def gradient_norms(block):
    """Our one input projection of a gated delta net is two of theirs."""
    norms = {name: norm_of(parameter.grad) for name, parameter in block.named_parameters()}
    parts = [norms.pop(name, 0.0) for name in DELTA_PROJECTIONS]
    return [*norms.values(), math.hypot(*parts)]


def main():
    path, dtype, steps = sys.argv[1:]
    with open(path, "rb") as file:
        block, x, dy = read_layer(file, {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype])
    x.requires_grad_()
    for _ in range(int(steps)):
        begin = now()
        for tensor in (x, *block.parameters()):
            tensor.grad = None
        y = block(x)
        y.backward(dy)
        print_step(begin, now(), norm_of(y) + norm_of(x.grad) + sum(gradient_norms(block)))


if __name__ == "__main__":
    if sys.argv[2] == "inputs":
        write_inputs(sys.argv[1], sys.argv[3], *map(int, sys.argv[4:]))
    else:
        main()
