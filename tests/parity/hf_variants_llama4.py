"""Variants of Llama 4: chunks, layers without rotary positions, experts that scale their input."""
from hf_variants import COMMON, LLAMA3_SCALING, Variant, spell_as_transformers_4
from transformers import Llama4TextConfig


def variants():
    common = dict(
        COMMON,
        vocab_size=131,
        num_hidden_layers=4,
        intermediate_size=40,
        intermediate_size_mlp=112,
        num_key_value_heads=2,
        head_dim=24,
        num_local_experts=6,
        attention_chunk_size=7,
        floor_scale=4,
        attn_scale=0.3,
        router_aux_loss_coef=0.0,
    )
    yield Variant("llama4_text", Llama4TextConfig(**common))
    yield Variant(
        "llama4_text dense layers, llama3 rope v4, mqa, sharded",
        Llama4TextConfig(
            **dict(common, num_key_value_heads=1),
            interleave_moe_layer_step=2,
            no_rope_layer_interval=2,
            rope_parameters=dict(LLAMA3_SCALING, low_freq_factor=1.0, high_freq_factor=1.0),
        ),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "llama4_text lists of layers, no norms, no temperature, tied",
        Llama4TextConfig(
            **common,
            moe_layers=[0, 3],
            no_rope_layers=[0, 1, 1, 0],
            layer_types=["chunked_attention", "full_attention"] * 2,
            use_qk_norm=False,
            attn_temperature_tuning=False,
            tie_word_embeddings=True,
        ),
    )
