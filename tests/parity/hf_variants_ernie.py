"""Variants of ERNIE 4.5."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import Ernie4_5_MoeConfig, Ernie4_5Config


def variants():
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2)
    yield Variant("ernie4_5", Ernie4_5Config(**common, head_dim=24))
    yield Variant(
        "ernie4_5 mqa, biases, untied, v4",
        Ernie4_5Config(
            **dict(common, num_key_value_heads=1),
            use_bias=True,
            head_dim=None,
            tie_word_embeddings=False,
        ),
        edits=[spell_as_transformers_4],
    )
    experts = dict(
        common,
        moe_num_experts=8,
        moe_k=3,
        moe_intermediate_size=24,
        moe_num_shared_experts=1,
        router_aux_loss_coef=0.0,
    )
    yield Variant("ernie4_5_moe", Ernie4_5_MoeConfig(**experts))
    yield Variant(
        "ernie4_5_moe every second layer, untied, v4",
        Ernie4_5_MoeConfig(
            **dict(experts, num_hidden_layers=4, moe_num_shared_experts=2),
            moe_layer_interval=2,
            moe_layer_start_index=0,
            moe_layer_end_index=2,
            tie_word_embeddings=False,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "ernie4_5_moe stacked, without shared experts",
        Ernie4_5_MoeConfig(**dict(experts, moe_num_shared_experts=0), moe_layer_start_index=0),
        stacked=True,
    )
