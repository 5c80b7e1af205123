"""GPT-2 and Llama as someone who wants PyTorch's best eager speed writes them.

They have few modules, F.scaled_dot_product_attention and a tied head."""
import torch
import torch.nn.functional as F
from torch import nn


def merged_heads(q, k, v):
    """Computes causal attention of [batch, heads, seq, head size] as [batch, seq, hidden].
    Fewer key heads are shared between query heads."""
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.size(1) != k.size(1))
    return out.transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.heads = size.heads
        self.norm1, self.norm2 = nn.LayerNorm(size.hidden), nn.LayerNorm(size.hidden)
        self.qkv, self.proj = nn.Linear(size.hidden, 3 * size.hidden), nn.Linear(
            size.hidden, size.hidden
        )
        self.fc1, self.fc2 = nn.Linear(size.hidden, size.ffn), nn.Linear(size.ffn, size.hidden)

    def forward(self, x):
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, 2)
        )
        x = x + self.proj(merged_heads(q, k, v))
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(size.vocab, size.hidden), nn.Embedding(
            size.positions, size.hidden
        )
        self.blocks = nn.ModuleList(Gpt2Block(size) for _ in range(size.layers))
        self.norm = nn.LayerNorm(size.hidden)

    def forward(self, ids):
        x = self.tokens(ids) + self.positions.weight[: ids.size(1)]
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)

    def load(self, weights):
        """Weights under transformers' names; its Conv1D keeps matrices transposed."""
        names = {
            "norm1": "ln_1",
            "norm2": "ln_2",
            "qkv": "attn.c_attn",
            "proj": "attn.c_proj",
            "fc1": "mlp.c_fc",
            "fc2": "mlp.c_proj",
        }
        own = {
            "tokens.weight": "wte.weight",
            "positions.weight": "wpe.weight",
            "norm.weight": "ln_f.weight",
            "norm.bias": "ln_f.bias",
        }
        for layer in range(len(self.blocks)):
            own |= {
                f"blocks.{layer}.{ours}.{kind}": f"h.{layer}.{theirs}.{kind}"
                for ours, theirs in names.items()
                for kind in ("weight", "bias")
            }
        found = {ours: weights[f"transformer.{theirs}"] for ours, theirs in own.items()}
        self.load_state_dict(
            {
                name: value.t() if "blocks" in name and value.dim() == 2 else value
                for name, value in found.items()
            }
        )


class LlamaBlock(nn.Module):
    def __init__(self, size):
        super().__init__()
        head = size.head_size()
        self.head, self.widths = head, [size.hidden, size.groups * head, size.groups * head]
        self.norm1, self.norm2 = nn.RMSNorm(size.hidden, eps=1e-6), nn.RMSNorm(
            size.hidden, eps=1e-6
        )
        self.qkv, self.proj = nn.Linear(size.hidden, sum(self.widths), bias=False), nn.Linear(
            size.hidden, size.hidden, bias=False
        )
        self.gate_up, self.down = nn.Linear(size.hidden, 2 * size.ffn, bias=False), nn.Linear(
            size.ffn, size.hidden, bias=False
        )

    def forward(self, x, cos, sin):
        q, k, v = (
            part.unflatten(2, (-1, self.head)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(self.widths, 2)
        )
        x = x + self.proj(merged_heads(rotated(q, cos, sin), rotated(k, cos, sin), v))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, 2)
        return x + self.down(F.silu(gate) * up)


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Llama(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.hidden)
        self.blocks = nn.ModuleList(LlamaBlock(size) for _ in range(size.layers))
        self.norm = nn.RMSNorm(size.hidden, eps=1e-6)
        frequencies = 1.0 / 10000 ** (torch.arange(0, size.head_size(), 2) / size.head_size())
        angles = torch.outer(torch.arange(size.positions), frequencies)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x, cos, sin = self.tokens(ids), self.cos[: ids.size(1)], self.sin[: ids.size(1)]
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.linear(self.norm(x), self.tokens.weight)

    def load(self, weights):
        """Weights under transformers' names; q, k, v and gate, up are stacked here."""
        own = {
            "tokens.weight": weights["model.embed_tokens.weight"],
            "norm.weight": weights["model.norm.weight"],
        }
        for layer in range(len(self.blocks)):
            theirs = {
                name.removeprefix(f"model.layers.{layer}."): value
                for name, value in weights.items()
                if f".layers.{layer}." in name
            }
            own |= {
                f"blocks.{layer}.{name}.weight": value
                for name, value in {
                    "norm1": theirs["input_layernorm.weight"],
                    "norm2": theirs["post_attention_layernorm.weight"],
                    "qkv": torch.cat([theirs[f"self_attn.{part}_proj.weight"] for part in "qkv"]),
                    "proj": theirs["self_attn.o_proj.weight"],
                    "gate_up": torch.cat(
                        [theirs["mlp.gate_proj.weight"], theirs["mlp.up_proj.weight"]]
                    ),
                    "down": theirs["mlp.down_proj.weight"],
                }.items()
            }
        self.load_state_dict(own)


def plain_model(size):
    return {"gpt2": Gpt2, "llama": Llama}[size.family](size)
