"""Runs one turn of transformers' DeepseekV3Attention, in a process of its own.

It prints what attention_block_bench prints. Before that, `inputs` writes the file that both read:
with a CONTEXT of 0 for training, else for decode steps of BATCH sequences.

  latent_turn.py FILE inputs LENGTH BATCH CONTEXT HIDDEN HEADS Q_LORA KV_LORA QK ROTATED V
  latent_turn.py FILE fp32|bf16 train eager|sdpa STEPS
  latent_turn.py FILE fp32|bf16 decode eager|sdpa STEPS CONTEXT BATCH"""
import json
import os
import sys
import time

import numpy as np
import torch

# As the programs of ours do it (bench/program.h).
now = time.process_time if os.environ.get("BENCH_CLOCK") == "cpu" else time.perf_counter


def weight_shapes(hidden, heads, q_lora, kv_lora, qk, rotated, v):
    """The weights of the block in the order of the file."""
    return {
        "q_a_proj": (q_lora, hidden),
        "q_a_layernorm": (q_lora,),
        "q_b_proj": (heads * (qk + rotated), q_lora),
        "kv_a_proj_with_mqa": (kv_lora + rotated, hidden),
        "kv_a_layernorm": (kv_lora,),
        "kv_b_proj": (heads * (qk + v), kv_lora),
        "o_proj": (hidden, heads * v),
    }


def write_inputs(path, length, batch, context, *sizes):
    """Writes the sizes and the weights. The input and the gradient of the output follow, or the
    latents with the rotated key of a sequence, and one row for each sequence."""
    random = np.random.default_rng(1234)
    hidden, _, _, kv_lora, _, rotated, _ = sizes
    rows = [(length, batch, hidden)] * 2
    if context:
        rows = [(context, kv_lora + rotated), (batch, hidden)]
    with open(path, "wb") as file:
        np.array([length, batch, *sizes], dtype=np.int64).tofile(file)
        for shape in weight_shapes(*sizes).values():
            scale, offset = (0.1, 1) if len(shape) == 1 else (shape[-1] ** -0.5, 0)
            values = random.standard_normal(shape, dtype=np.float32) * np.float32(scale) + offset
            values.astype(np.float32).tofile(file)
        for shape in rows:
            random.standard_normal(shape, dtype=np.float32).tofile(file)


class Inputs:
    def __init__(self, file, dtype):
        self.file_, self.dtype_ = file, dtype
        self.length, self.batch, *self.sizes = map(int, np.fromfile(file, np.int64, 9))

    def take(self, *shape):
        values = np.fromfile(self.file_, np.float32, int(np.prod(shape))).reshape(shape)
        return torch.from_numpy(values).to(self.dtype_)


def attention_block(inputs, implementation, dtype):
    """DeepSeek-V3's attention with the weights of the file, and its rotary embedding."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek

    hidden, heads, q_lora, kv_lora, qk, rotated, v = inputs.sizes
    config = DeepseekV3Config(
        hidden_size=hidden,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        q_lora_rank=q_lora,
        kv_lora_rank=kv_lora,
        qk_nope_head_dim=qk,
        qk_rope_head_dim=rotated,
        v_head_dim=v,
        max_position_embeddings=1 << 15,
    )
    config._attn_implementation = implementation
    block = deepseek.DeepseekV3Attention(config, layer_idx=0).to(dtype)
    for name, shape in weight_shapes(*inputs.sizes).items():
        getattr(block, name).weight.data = inputs.take(*shape)
    return block, deepseek.DeepseekV3RotaryEmbedding(config)


def norm_of(tensor):
    return tensor.double().square().sum().sqrt().item()


def print_step(begin, end, total):
    print(json.dumps({"ms": (end - begin) * 1e3, "loss": total}), flush=True)


def train(inputs, implementation, dtype, steps):
    block, rotary = attention_block(inputs, implementation, dtype)
    shape = (inputs.length, inputs.batch, inputs.sizes[0])
    x, dy = (inputs.take(*shape).transpose(0, 1).contiguous() for _ in range(2))
    positions = rotary(x, torch.arange(inputs.length)[None])
    mask = None
    if implementation == "eager":
        least = torch.finfo(dtype).min
        mask = torch.full((inputs.length, inputs.length), least, dtype=dtype).triu(1)[None, None]
    x.requires_grad_()
    for _ in range(steps):
        begin = now()
        for tensor in (x, *block.parameters()):
            tensor.grad = None
        y = block(x, position_embeddings=positions, attention_mask=mask)[0]
        y.backward(dy)
        end = now()
        gradients = [x.grad, *(parameter.grad for parameter in block.parameters())]
        print_step(begin, end, norm_of(y) + sum(map(norm_of, gradients)))


@torch.inference_mode()
def decode(inputs, implementation, dtype, steps, context, batch):
    from transformers import DynamicCache

    block, rotary = attention_block(inputs, implementation, dtype)
    block.eval()
    _, _, _, kv_lora, _, rotated, _ = inputs.sizes
    kept = inputs.take(context, kv_lora + rotated)
    # transformers' rotation leaves the even channels before the odd ones.
    key = kept[:, kv_lora:].unflatten(1, (-1, 2)).transpose(1, 2).flatten(1)
    latents = kept[:, :kv_lora].expand(batch, 1, -1, -1).contiguous()
    keys = key.expand(batch, 1, -1, -1).contiguous()
    rows = inputs.take(batch, 1, inputs.sizes[0])
    positions = rotary(rows, torch.full((batch, 1), context))
    for _ in range(steps):
        cache = DynamicCache()
        cache.update(latents, keys, 0)
        begin = now()
        y = block(
            rows, position_embeddings=positions, attention_mask=None, past_key_values=cache
        )[0]
        print_step(begin, now(), norm_of(y))


def main():
    path, dtype, mode, implementation, *numbers = sys.argv[1:]
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    with open(path, "rb") as file:
        run = {"train": train, "decode": decode}[mode]
        run(Inputs(file, dtype), implementation, dtype, *map(int, numbers))


if __name__ == "__main__":
    if sys.argv[2] == "inputs":
        write_inputs(sys.argv[1], *map(int, sys.argv[3:]))
    else:
        main()
