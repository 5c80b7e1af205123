"""Variants of the families that most models descend from, dense and with experts."""
from hf_variants import (
    COMMON,
    LLAMA3_SCALING,
    Variant,
    drop_transformer_prefix,
    save_with_safetensors,
    spell_as_transformers_4,
    spell_rope_scaling_type,
)
from transformers import (
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2Config,
    Qwen2MoeConfig,
    Qwen3Config,
    Qwen3MoeConfig,
    Starcoder2Config,
)


def variants():
    llama, qwen3 = dict(COMMON, vocab_size=131), dict(
        COMMON, vocab_size=131, num_key_value_heads=2, head_dim=24
    )
    gpt2 = dict(
        vocab_size=131,
        n_positions=64,
        n_embd=64,
        n_layer=3,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    yield Variant("gpt2", GPT2Config(**gpt2))
    yield Variant("gpt2 first spelling", GPT2Config(**gpt2), edits=[drop_transformer_prefix])
    yield Variant(
        "gpt2 own ffn size, erf gelu, untied",
        GPT2Config(**gpt2, n_inner=96, activation_function="gelu", tie_word_embeddings=False),
    )
    yield Variant("gpt2 by save_model", GPT2Config(**gpt2), edits=[save_with_safetensors])
    for kind, tied in {
        "llama": LlamaConfig(**llama, tie_word_embeddings=True),
        "qwen2": Qwen2Config(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        "qwen3": Qwen3Config(**qwen3, tie_word_embeddings=True),
        "mistral": MistralConfig(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        "starcoder2": Starcoder2Config(**llama, num_key_value_heads=4),
    }.items():
        yield Variant(f"{kind} tied by save_model", tied, edits=[save_with_safetensors])
    yield Variant("llama mha", LlamaConfig(**llama))
    yield Variant("llama mha sharded", LlamaConfig(**llama), shard_size="60KB")
    yield Variant(
        "llama gqa llama3 rope",
        LlamaConfig(**llama, num_key_value_heads=2, rope_parameters=LLAMA3_SCALING),
    )
    yield Variant(
        "llama gqa llama3 rope v4",
        LlamaConfig(**llama, num_key_value_heads=2, rope_parameters=LLAMA3_SCALING),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "llama linear rope v4 type",
        LlamaConfig(
            **llama, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)
        ),
        edits=[spell_as_transformers_4, spell_rope_scaling_type],
    )
    yield Variant(
        "llama mqa tied own head size",
        LlamaConfig(**llama, num_key_value_heads=1, head_dim=24, tie_word_embeddings=True),
    )
    yield Variant("llama biases", LlamaConfig(**llama, attention_bias=True, mlp_bias=True))
    yield Variant("qwen2", Qwen2Config(**llama, num_key_value_heads=2))
    yield Variant(
        "qwen2 tied v4",
        Qwen2Config(**llama, num_key_value_heads=4, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    yield Variant("qwen3", Qwen3Config(**qwen3))
    yield Variant(
        "qwen3 tied yarn",
        Qwen3Config(
            **qwen3,
            tie_word_embeddings=True,
            rope_parameters=dict(
                rope_type="yarn",
                rope_theta=1000000.0,
                factor=4.0,
                original_max_position_embeddings=16,
            ),
        ),
    )
    yield Variant(
        "mistral sliding window", MistralConfig(**llama, num_key_value_heads=2, sliding_window=7)
    )
    yield Variant(
        "mistral full attention", MistralConfig(**llama, num_key_value_heads=2, sliding_window=None)
    )
    starcoder2 = dict(llama, num_key_value_heads=2)
    yield Variant("starcoder2", Starcoder2Config(**starcoder2))
    yield Variant(
        "starcoder2 untied v4, sliding window",
        Starcoder2Config(**starcoder2, tie_word_embeddings=False, sliding_window=7),
        edits=[spell_as_transformers_4],
    )
    yield Variant(
        "starcoder2 without biases, linear rope",
        Starcoder2Config(
            **starcoder2,
            use_bias=False,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
        ),
    )


def expert_variants():
    """Models with experts.
    transformers adds its balancing loss to the loss that it returns, not to the loss here."""
    common = dict(COMMON, vocab_size=131, num_key_value_heads=2, router_aux_loss_coef=0.0)
    mixtral = dict(common, num_local_experts=6, num_experts_per_tok=3)
    qwen = dict(common, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=48)
    yield Variant("mixtral", MixtralConfig(**mixtral))
    yield Variant("mixtral stacked", MixtralConfig(**mixtral), stacked=True)
    yield Variant(
        "mixtral sliding window sharded v4",
        MixtralConfig(**mixtral, sliding_window=7, head_dim=24),
        shard_size="60KB",
        edits=[spell_as_transformers_4],
    )
    qwen2 = dict(qwen, shared_expert_intermediate_size=80)
    yield Variant("qwen2_moe", Qwen2MoeConfig(**qwen2))
    yield Variant(
        "qwen2_moe renormalised, a dense layer",
        Qwen2MoeConfig(**qwen2, norm_topk_prob=True, mlp_only_layers=[1]),
    )
    yield Variant(
        "qwen2_moe tied v4, no QKV biases",
        Qwen2MoeConfig(**qwen2, qkv_bias=False, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    yield Variant("qwen3_moe", Qwen3MoeConfig(**qwen, head_dim=24))
    yield Variant(
        "qwen3_moe renormalised, every second layer",
        Qwen3MoeConfig(**qwen, norm_topk_prob=True, decoder_sparse_step=2, head_dim=24),
    )
    yield Variant(
        "qwen3_moe stacked, sliding window, one expert",
        Qwen3MoeConfig(
            **dict(qwen, num_experts_per_tok=1), use_sliding_window=True, sliding_window=7
        ),
        stacked=True,
    )
    yield Variant(
        "qwen3_moe tied v4",
        Qwen3MoeConfig(**qwen, norm_topk_prob=True, tie_word_embeddings=True),
        edits=[spell_as_transformers_4],
    )
    olmoe = dict(common, num_key_value_heads=4, num_experts=6, num_experts_per_tok=3)
    yield Variant("olmoe", OlmoeConfig(**olmoe))
    yield Variant(
        "olmoe renormalised, gqa, clipped",
        OlmoeConfig(**dict(olmoe, num_key_value_heads=2), norm_topk_prob=True, clip_qkv=1.25),
    )
    yield Variant(
        "olmoe stacked, tied", OlmoeConfig(**olmoe, tie_word_embeddings=True), stacked=True
    )
