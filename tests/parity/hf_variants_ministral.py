"""Variants of Ministral."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import Ministral3Config, MinistralConfig


def variants():
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2)
    yield Variant(
        "ministral windows of all layers",
        MinistralConfig(**common, head_dim=16, sliding_window=7),
    )
    yield Variant(
        "ministral layers with and without windows, tied, v4",
        MinistralConfig(
            **common,
            head_dim=24,
            sliding_window=7,
            layer_types=["sliding_attention", "full_attention", "sliding_attention"],
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "ministral without windows",
        MinistralConfig(**common, head_dim=24, layer_types=["full_attention"] * 3),
    )
    yarn = dict(
        type="yarn",
        rope_theta=10000.0,
        factor=4.0,
        original_max_position_embeddings=16,
        beta_fast=32.0,
        beta_slow=1.0,
        mscale=1.0,
        mscale_all_dim=1.0,
        llama_4_scaling_beta=0.3,
    )
    yield Variant("ministral3", Ministral3Config(**common, head_dim=24, rope_parameters=dict(yarn)))
    yield Variant(
        "ministral3 mqa, tied, sliding window, v4",
        Ministral3Config(
            **dict(common, num_key_value_heads=1),
            head_dim=16,
            sliding_window=7,
            tie_word_embeddings=True,
            rope_parameters=dict(yarn, mscale=0.7, mscale_all_dim=0.6),
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "ministral3 default rope",
        Ministral3Config(
            **common,
            head_dim=16,
            rope_parameters=dict(
                rope_type="default",
                rope_theta=10000.0,
                llama_4_scaling_beta=0.5,
                original_max_position_embeddings=5,
            ),
        ),
    )
