"""Variants of the families with multi-latent attention."""
from hf_variants import COMMON, Variant, spell_as_transformers_4
from transformers import DeepseekV2Config, DeepseekV3Config


def variants():
    """Models with multi-latent attention."""
    common = dict(
        COMMON,
        vocab_size=131,
        num_key_value_heads=4,
        q_lora_rank=20,
        kv_lora_rank=12,
        qk_nope_head_dim=10,
        qk_rope_head_dim=8,
        v_head_dim=14,
        n_routed_experts=8,
        num_experts_per_tok=3,
        moe_intermediate_size=24,
        first_k_dense_replace=1,
        rms_norm_eps=1e-5,
    )
    yarn = dict(
        rope_type="yarn",
        rope_theta=10000.0,
        factor=4.0,
        original_max_position_embeddings=16,
        mscale=0.7,
        mscale_all_dim=0.6,
    )
    yield Variant(
        "deepseek_v2 without a latent of queries, yarn",
        DeepseekV2Config(**dict(common, q_lora_rank=None), rope_parameters=yarn),
    )
    yield Variant(
        "deepseek_v2 groups of experts, scaled, tied",
        DeepseekV2Config(
            **common,
            topk_method="group_limited_greedy",
            n_group=4,
            topk_group=3,
            routed_scaling_factor=1.5,
            n_shared_experts=1,
            tie_word_embeddings=True,
        ),
        stacked=True,
    )
    # The class has a depth of multi-token prediction by default, and no tensors for it.
    v3 = dict(
        common, num_experts_per_tok=4, n_group=4, topk_group=2, num_nextn_predict_layers=0
    )
    yield Variant("deepseek_v3", DeepseekV3Config(**v3))
    yield Variant(
        "deepseek_v3 yarn, one group, v4",
        DeepseekV3Config(
            **dict(v3, n_group=1, topk_group=1, q_lora_rank=None), rope_parameters=yarn
        ),
        edits=[spell_as_transformers_4],
    )
