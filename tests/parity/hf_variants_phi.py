"""Variants of families that descend from Llama: Phi-3, Seed-OSS, Hunyuan, SmolLM3 and Arcee."""
import json
from pathlib import Path

from hf_variants import (
    COMMON,
    LLAMA3_SCALING,
    Variant,
    save_with_safetensors,
    spell_as_transformers_4,
)
from transformers import (
    ArceeConfig,
    HunYuanDenseV1Config,
    Phi3Config,
    SeedOssConfig,
    SmolLM3Config,
)


def spell_phi3_as_transformers_4(directory):
    """Writes the rotated part of a head beside the rotary parameters.
    The file also has a length of pretraining, which only scaled positions use."""
    path = Path(directory) / "config.json"
    config = json.loads(path.read_text())
    config["partial_rotary_factor"] = config["rope_parameters"].pop("partial_rotary_factor")
    config["original_max_position_embeddings"] = 32
    path.write_text(json.dumps(config))
    spell_as_transformers_4(directory)


def phi_variants(common):
    phi3 = dict(common, embd_pdrop=0.25, resid_pdrop=0.25)
    yield Variant("phi3", Phi3Config(**phi3, num_key_value_heads=2, sliding_window=7))
    yield Variant(
        "phi3 part of a head, tied, v4",
        Phi3Config(
            **phi3,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="default", rope_theta=500000.0, partial_rotary_factor=0.75
            ),
        ),
        edits=[spell_phi3_as_transformers_4],
    )
    yield Variant(
        "phi3 mqa by save_model",
        Phi3Config(**common, num_key_value_heads=1, tie_word_embeddings=True),
        edits=[save_with_safetensors],
    )


def seed_variants(common):
    seed = dict(common, head_dim=24, num_key_value_heads=2)
    yield Variant("seed_oss", SeedOssConfig(**seed))
    yield Variant(
        "seed_oss all biases, tied, v4",
        SeedOssConfig(**seed, attention_out_bias=True, mlp_bias=True, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "seed_oss no biases, mqa",
        SeedOssConfig(
            **dict(seed, num_key_value_heads=1),
            attention_bias=False,
            rope_parameters=LLAMA3_SCALING,
        ),
    )


def hunyuan_variants(common):
    hunyuan = dict(common, head_dim=24)
    yield Variant("hunyuan_v1_dense", HunYuanDenseV1Config(**hunyuan, num_key_value_heads=2))
    dynamic = dict(
        rope_type="dynamic", rope_theta=10000.0, alpha=1000.0, factor=1.0, beta_fast=32, mscale=1.0
    )
    yield Variant(
        "hunyuan_v1_dense alpha, tied, v4",
        HunYuanDenseV1Config(**hunyuan, tie_word_embeddings=True, rope_parameters=dynamic),
        edits=[spell_as_transformers_4],
    )


def smollm3_variants(common):
    smollm3 = dict(common, num_hidden_layers=4, num_key_value_heads=2)
    yield Variant("smollm3", SmolLM3Config(**smollm3))
    yield Variant(
        "smollm3 windows, list of layers, untied",
        SmolLM3Config(
            **smollm3,
            no_rope_layers=[1, 0, 0, 1],
            use_sliding_window=True,
            sliding_window=7,
            tie_word_embeddings=False,
        ),
    )
    # Without positions a bias of the keys changes no probability, and its gradient is rounding.
    yield Variant(
        "smollm3 biases, positions in all layers",
        SmolLM3Config(**smollm3, no_rope_layers=[1] * 4, attention_bias=True, mlp_bias=True),
    )
    yield Variant(
        "smollm3 interval, layer types, v4",
        SmolLM3Config(
            **smollm3,
            no_rope_layer_interval=2,
            use_sliding_window=True,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention"] * 2,
        ),
        edits=[spell_as_transformers_4],
    )


def variants():
    common = dict(COMMON, vocab_size=131)
    yield from phi_variants(common)
    yield from seed_variants(common)
    yield from hunyuan_variants(common)
    yield from smollm3_variants(common)
    yield Variant("arcee", ArceeConfig(**common, num_key_value_heads=2, head_dim=24))
    yield Variant(
        "arcee biases, tied, v4",
        ArceeConfig(
            **common,
            num_key_value_heads=1,
            attention_bias=True,
            mlp_bias=True,
            tie_word_embeddings=True,
            rope_parameters=LLAMA3_SCALING,
        ),
        edits=[spell_as_transformers_4],
    )
