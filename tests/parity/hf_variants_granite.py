"""Variants of Granite, dense and with experts, whose multipliers all differ from 1."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import GraniteConfig, GraniteMoeConfig


def variants():
    common = dict(
        COMMON,
        vocab_size=131,
        num_key_value_heads=2,
        embedding_multiplier=3,
        attention_multiplier=0.3,
        residual_multiplier=0.22,
        logits_scaling=1.7,
    )
    yield Variant("granite", GraniteConfig(**common))
    yield Variant(
        "granite tied v4, biases, own head size",
        GraniteConfig(
            **dict(common, num_key_value_heads=1),
            attention_bias=True,
            mlp_bias=True,
            head_dim=24,
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant("granite of default multipliers", GraniteConfig(**dict(COMMON, vocab_size=131)))
    experts = dict(common, num_local_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0)
    yield Variant("granitemoe", GraniteMoeConfig(**experts))
    yield Variant(
        "granitemoe stacked, tied",
        GraniteMoeConfig(**experts, tie_word_embeddings=True),
        stacked=True,
    )
    yield Variant(
        "granitemoe one expert sharded v4",
        GraniteMoeConfig(**dict(experts, num_experts_per_tok=1)),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
