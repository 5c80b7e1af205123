"""Variants of GLM and of other families with experts and usual attention."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import (
    Dots1Config,
    FlexOlmoConfig,
    Glm4Config,
    Glm4MoeConfig,
    GlmConfig,
    HunYuanMoEV1Config,
    MiniMaxM2Config,
    SolarOpenConfig,
)


def variants():
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2)
    yield from glm_variants(common)
    routed = dict(
        common,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        rms_norm_eps=1e-5,
    )
    yield from routed_variants(routed)
    minimax = dict(
        common,
        num_local_experts=6,
        num_experts_per_tok=3,
        router_aux_loss_coef=0.0,
        head_dim=24,
        partial_rotary_factor=0.5,
    )
    yield Variant("minimax_m2", MiniMaxM2Config(**minimax))
    yield Variant(
        "minimax_m2 mqa, tied, whole heads rotated, v4",
        MiniMaxM2Config(
            **dict(minimax, num_key_value_heads=1, head_dim=20, partial_rotary_factor=1.0),
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant("minimax_m2 stacked", MiniMaxM2Config(**minimax), stacked=True)
    olmo = dict(common, num_experts=6, num_experts_per_tok=3, router_aux_loss_coef=0.0)
    yield Variant("flex_olmo", FlexOlmoConfig(**dict(olmo, num_key_value_heads=None)))
    yield Variant(
        "flex_olmo renormalised, gqa, tied, v4",
        FlexOlmoConfig(**olmo, norm_topk_prob=True, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    hunyuan = dict(common, head_dim=24, num_experts=6)
    yield Variant("hunyuan_v1_moe", HunYuanMoEV1Config(**hunyuan, moe_topk=3))
    yield Variant(
        "hunyuan_v1_moe stacked, mqa, alpha, tied, a list",
        HunYuanMoEV1Config(
            **dict(hunyuan, num_key_value_heads=1),
            moe_topk=[2, 2, 2],
            tie_word_embeddings=True,
            rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=50.0, factor=1.0),
        ),
        stacked=True,
    )


def glm_variants(common):
    yield Variant("glm", GlmConfig(**common, head_dim=24))
    yield Variant(
        "glm mqa, tied, without biases, v4",
        GlmConfig(
            **dict(common, num_key_value_heads=1),
            head_dim=16,
            attention_bias=False,
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "glm4 a quarter rotated, sharded",
        Glm4Config(**common, head_dim=24, partial_rotary_factor=0.25),
        shard_size="60KB",
    )
    yield Variant(
        "glm4 linear rope, tied, v4",
        Glm4Config(
            **common,
            head_dim=16,
            tie_word_embeddings=True,
            rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="linear", rope_theta=5000.0, factor=4.0),
        ),
        edits=[spell_as_transformers_4],
    )


def routed_variants(routed):
    yield Variant("glm4_moe", Glm4MoeConfig(**routed, use_qk_norm=True, head_dim=24))
    yield Variant(
        "glm4_moe groups, scaled, biases, v4",
        Glm4MoeConfig(
            **dict(routed, num_experts_per_tok=4),
            n_group=4,
            topk_group=2,
            routed_scaling_factor=1.7,
            attention_bias=True,
            first_k_dense_replace=2,
            n_shared_experts=2,
        ),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "glm4_moe stacked, tied, no dense layer",
        Glm4MoeConfig(**routed, first_k_dense_replace=0, tie_word_embeddings=True),
        stacked=True,
    )
    yield Variant("solar_open", SolarOpenConfig(**routed, head_dim=24))
    yield Variant(
        "solar_open groups, biases, tied, v4",
        SolarOpenConfig(
            **dict(routed, num_experts_per_tok=4),
            head_dim=16,
            n_group=2,
            topk_group=1,
            routed_scaling_factor=0.5,
            attention_bias=True,
            tie_word_embeddings=True,
        ),
        edits=[spell_as_transformers_4],
    )
    dots1 = dict(routed, n_shared_experts=1, first_k_dense_replace=1)
    yield Variant("dots1", Dots1Config(**dots1, sliding_window=None))
    yield Variant(
        "dots1 windows, groups, scaled, v4",
        Dots1Config(
            **dict(dots1, num_experts_per_tok=4),
            head_dim=24,
            sliding_window=7,
            max_window_layers=1,
            n_group=4,
            topk_group=2,
            routed_scaling_factor=2.5,
        ),
        edits=[spell_as_transformers_4],
    )
