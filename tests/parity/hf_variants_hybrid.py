"""Variants of families with recurrent layers: Mamba-2 and gated delta nets."""
import json
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from hf_variants import COMMON, Variant, spell_as_transformers_4, tell_norms_apart
from transformers import (
    BambaConfig,
    GraniteMoeHybridConfig,
    Mamba2Config,
    NemotronHConfig,
    OlmoHybridConfig,
    Qwen3_5MoeTextConfig,
    Qwen3_5TextConfig,
    Qwen3NextConfig,
)

TOKENS = dict(vocab_size=131, bos_token_id=None, eos_token_id=None, pad_token_id=None)


class WideTorch:
    """torch, for a source that converts to float32 what is to stay in float64."""

    float32 = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@contextmanager
def wide_delta_nets(model):
    """Computes in float64: the recurrence divides by norms of small vectors, so float32 has errors
    of 1e-5 in log-probabilities and 2e-4 in gradients."""
    source = sys.modules[type(model).__module__]
    to_float32 = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double
    source.torch = WideTorch()
    if hasattr(model.config, "num_experts"):
        model.set_experts_implementation("eager")  # grouped GEMMs have no float64
    model.double()
    yield
    model.to(torch.float32)
    source.torch = torch
    torch.Tensor.float = to_float32


def add_image_positions(directory):
    """Writes the rotary parameters of published folders, whose sections are for images."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["rope_parameters"] |= dict(mrope_interleaved=True, mrope_section=[2, 2, 2])
    path.write_text(json.dumps(config, indent=2))


def spell_limit_as_python(directory):
    """Writes config.json as transformers 4 does: Infinity is no JSON, and layers are a text."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["time_step_limit"] = [0.0, float("inf")]
    config["torch_dtype"] = config.pop("dtype")
    types = config.pop("layers_block_type", None)
    if types is not None:
        symbols = dict(linear_attention="M", full_attention="*", moe="E", mlp="-")
        config["hybrid_override_pattern"] = "".join(symbols[kind] for kind in types)
        config["num_hidden_layers"] = len(types)
    path.write_text(json.dumps(config, indent=2))


def mamba2_variants():
    common = dict(
        TOKENS, hidden_size=64, num_hidden_layers=3, num_heads=8, head_dim=16, state_size=24
    )
    yield Variant("mamba2", Mamba2Config(**common, n_groups=1))
    yield Variant(
        "mamba2 groups tied v4",
        Mamba2Config(**common, n_groups=4, tie_word_embeddings=True, chunk_size=16),
        edits=[spell_limit_as_python],
    )


def nemotron_h_variants():
    common = dict(
        TOKENS,
        hidden_size=64,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=24,
        intermediate_size=112,
        max_position_embeddings=64,
        mamba_num_heads=6,
        mamba_head_dim=16,
        ssm_state_size=24,
        n_groups=2,
        chunk_size=16,
    )
    experts = dict(
        n_routed_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=40,
        moe_shared_expert_intermediate_size=56,
        routed_scaling_factor=2.5,
    )
    mixed = ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"]
    yield Variant("nemotron_h", NemotronHConfig(**common, **experts, layers_block_type=mixed))
    yield Variant(
        "nemotron_h stacked",
        NemotronHConfig(**common, **experts, layers_block_type=mixed[:3]),
        stacked=True,
    )
    yield Variant(
        "nemotron_h dense v4",
        NemotronHConfig(
            **dict(common, n_groups=1),
            layers_block_type=["linear_attention", "mlp", "linear_attention", "full_attention"],
        ),
        edits=[spell_limit_as_python],
    )
    yield Variant(
        "nemotron_h latent experts in groups, sharded",
        NemotronHConfig(
            **common,
            **experts,
            layers_block_type=mixed,
            moe_latent_size=32,
            n_group=3,
            topk_group=2,
        ),
        shard_size="60KB",
    )


MAMBA = dict(
    mamba_n_heads=8, mamba_d_head=16, mamba_d_state=24, mamba_n_groups=1, mamba_chunk_size=16
)


def bamba_variants():
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2, **MAMBA)
    yield Variant("bamba", BambaConfig(**common, attn_layer_indices=[1]))
    yield Variant(
        "bamba groups, automatic heads, tied v4",
        BambaConfig(
            **dict(common, mamba_n_groups=2, mamba_d_head="auto"),
            attn_layer_indices=[0, 2],
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )


def granite_variants():
    common = dict(
        COMMON,
        **MAMBA,
        vocab_size=131,
        num_key_value_heads=2,
        shared_intermediate_size=56,
        embedding_multiplier=3.0,
        attention_multiplier=0.3,
        residual_multiplier=0.22,
        logits_scaling=1.7,
        layer_types=["linear_attention", "full_attention", "linear_attention"],
    )
    experts = dict(num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0)
    yield Variant("granitemoehybrid", GraniteMoeHybridConfig(**common, **experts))
    yield Variant(
        "granitemoehybrid rotary, tied, stacked",
        GraniteMoeHybridConfig(
            **common, **experts, position_embedding_type="rope", tie_word_embeddings=True
        ),
        stacked=True,
    )
    yield Variant(
        "granitemoehybrid dense", GraniteMoeHybridConfig(**common, num_local_experts=0)
    )


def qwen_variants():
    dense = dict(
        COMMON,
        vocab_size=131,
        num_hidden_layers=4,
        num_key_value_heads=2,
        head_dim=24,
        partial_rotary_factor=0.5,
        linear_num_key_heads=2,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=24,
    )
    common = dict(
        dense,
        num_experts=6,
        num_experts_per_tok=3,
        moe_intermediate_size=48,
        shared_expert_intermediate_size=56,
        router_aux_loss_coef=0.0,
    )
    yield Variant("qwen3_next", Qwen3NextConfig(**common), wide=wide_delta_nets)
    yield Variant(
        "qwen3_next layers by list, a dense layer, tied v4",
        Qwen3NextConfig(
            **dict(common, linear_num_key_heads=4),
            layer_types=["full_attention", "linear_attention"] * 2,
            mlp_only_layers=[1],
            norm_topk_prob=False,
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
        wide=wide_delta_nets,
    )
    yield Variant(
        "qwen3_5_text",
        Qwen3_5TextConfig(**dense),
        edits=[add_image_positions],
        wide=wide_delta_nets,
    )
    yield Variant(
        "qwen3_5_text layers by list, tied v4",
        Qwen3_5TextConfig(
            **dict(dense, linear_num_key_heads=4),
            layer_types=["full_attention", "linear_attention"] * 2,
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
        wide=wide_delta_nets,
    )
    experts = {key: value for key, value in common.items() if key != "intermediate_size"}
    yield Variant("qwen3_5_moe_text", Qwen3_5MoeTextConfig(**experts), wide=wide_delta_nets)
    yield Variant(
        "qwen3_5_moe_text stacked",
        Qwen3_5MoeTextConfig(**experts),
        stacked=True,
        wide=wide_delta_nets,
    )


def olmo_variants():
    # transformers writes the convolution in three equal parts, which are those of queries, keys
    # and values only if these have as many channels.
    common = dict(
        COMMON,
        vocab_size=131,
        num_hidden_layers=4,
        num_key_value_heads=2,
        linear_num_key_heads=4,
        linear_num_value_heads=4,
        linear_key_head_dim=16,
        linear_value_head_dim=16,
    )
    no_base = dict(rope_type="default", rope_theta=None)
    yield Variant(
        "olmo_hybrid",
        OlmoHybridConfig(**common, rope_parameters=no_base),
        edits=[tell_norms_apart],
        wide=wide_delta_nets,
    )
    yield Variant(
        "olmo_hybrid rotary, positive eigenvalues, tied",
        OlmoHybridConfig(
            **(common | dict(linear_num_key_heads=2, linear_key_head_dim=32)),
            layer_types=["full_attention", "linear_attention"] * 2,
            linear_allow_neg_eigval=False,
            tie_word_embeddings=True,
        ),
        edits=[tell_norms_apart],
        wide=wide_delta_nets,
    )


def variants():
    yield from mamba2_variants()
    yield from nemotron_h_variants()
    yield from bamba_variants()
    yield from granite_variants()
    yield from qwen_variants()
    yield from olmo_variants()
