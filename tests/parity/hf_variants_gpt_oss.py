"""Variants of GPT-OSS: sinks, windows in every second layer, and experts with biases."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import GptOssConfig

YARN = dict(
    rope_type="yarn",
    rope_theta=150000.0,
    factor=4.0,
    beta_fast=32.0,
    beta_slow=1.0,
    truncate=False,
    original_max_position_embeddings=16,
)


def variants():
    common = dict(
        COMMON,
        vocab_size=131,
        num_hidden_layers=4,
        intermediate_size=40,
        num_key_value_heads=2,
        head_dim=24,
        num_local_experts=6,
        num_experts_per_tok=3,
        sliding_window=7,
        router_aux_loss_coef=0.0,
    )
    yield Variant("gpt_oss", GptOssConfig(**common, rope_parameters=YARN))
    yield Variant(
        "gpt_oss mqa tied sharded v4",
        GptOssConfig(
            **dict(common, num_key_value_heads=1), tie_word_embeddings=True, rope_parameters=YARN
        ),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
    yield Variant("gpt_oss default rotary scaling", GptOssConfig(**common))
    yield Variant(
        "gpt_oss not scaled, windows by list, two experts",
        GptOssConfig(
            **dict(common, num_experts_per_tok=2),
            rope_parameters=dict(rope_type="default", rope_theta=1000.0),
            layer_types=["full_attention"] + ["sliding_attention"] * 3,
        ),
    )
