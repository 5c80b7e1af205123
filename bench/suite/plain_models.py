"""GPT-2, Llama and Mixtral as someone who wants PyTorch's best eager speed writes them.

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


class SwiGlu(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate_up = nn.Linear(size.hidden, 2 * size.ffn, bias=False)
        self.down = nn.Linear(size.ffn, size.hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, 2)
        return self.down(F.silu(gate) * up)


class Experts(nn.Module):
    """A loop over SwiGLU experts, each on its rows; weights are stacked."""

    def __init__(self, router, gate_up, down, top_k):
        super().__init__()
        self.router, self.gate_up, self.down, self.top_k = (
            nn.Parameter(router),
            nn.Parameter(gate_up),
            nn.Parameter(down),
            top_k,
        )

    def route(self, x):
        shares, chosen = F.linear(x, self.router).float().softmax(-1).topk(self.top_k)
        return (shares / shares.sum(-1, keepdim=True)).to(x.dtype), chosen

    def forward(self, x_bsh):
        x = x_bsh.flatten(0, -2)
        shares, chosen = self.route(x)
        out = torch.zeros_like(x)
        for expert, (gate_up, down) in enumerate(
            zip(self.gate_up.unbind(), self.down.unbind(), strict=True)
        ):
            token, place = torch.where(chosen == expert)
            gate, up = F.linear(x[token], gate_up).chunk(2, -1)
            out.index_add_(0, token, F.linear(F.silu(gate) * up, down) * shares[token, place, None])
        return out.view_as(x_bsh)


def mlp_of(size):
    if not size.experts:
        return SwiGlu(size)
    return Experts(
        torch.empty(size.experts, size.hidden),
        torch.empty(size.experts, 2 * size.ffn, size.hidden),
        torch.empty(size.experts, size.hidden, size.ffn),
        size.top_k,
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
        self.mlp = mlp_of(size)

    def forward(self, x, cos, sin):
        q, k, v = (
            part.unflatten(2, (-1, self.head)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(self.widths, 2)
        )
        x = x + self.proj(merged_heads(rotated(q, cos, sin), rotated(k, cos, sin), v))
        return x + self.mlp(self.norm2(x))


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(x.dtype)


class Llama(nn.Module):
    """Llama, and with experts Mixtral."""

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
                f"blocks.{layer}.{name}": value
                for name, value in {
                    "norm1.weight": theirs["input_layernorm.weight"],
                    "norm2.weight": theirs["post_attention_layernorm.weight"],
                    "qkv.weight": torch.cat(
                        [theirs[f"self_attn.{part}_proj.weight"] for part in "qkv"]
                    ),
                    "proj.weight": theirs["self_attn.o_proj.weight"],
                    **mlp_weights(theirs),
                }.items()
            }
        self.load_state_dict(own)


def mlp_weights(theirs):
    """The weights of a layer's MLP or experts under our names."""
    if "mlp.down_proj.weight" in theirs:
        return {
            "mlp.gate_up.weight": torch.cat(
                [theirs["mlp.gate_proj.weight"], theirs["mlp.up_proj.weight"]]
            ),
            "mlp.down.weight": theirs["mlp.down_proj.weight"],
        }
    moe = "block_sparse_moe"
    experts = [
        {part: theirs[f"{moe}.experts.{expert}.{part}.weight"] for part in ("w1", "w2", "w3")}
        for expert in range(len(theirs[f"{moe}.gate.weight"]))
    ]
    return {
        "mlp.router": theirs[f"{moe}.gate.weight"],
        "mlp.gate_up": torch.stack([torch.cat([one["w1"], one["w3"]]) for one in experts]),
        "mlp.down": torch.stack([one["w2"] for one in experts]),
    }


def plain_model(size):
    return (Gpt2 if size.family == "gpt2" else Llama)(size)
