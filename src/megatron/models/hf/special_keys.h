// Rows for the keys of config.json that need code: their defaults depend on other keys, or several
// keys make one setting.
#pragma once

#include "megatron/models/hf/hf_config.h"

namespace megatron {

/// num_key_value_heads; a default of 0 means as many as heads.
KeyRow key_value_heads();
/// head_dim; a default of 0 means hidden_size / num_attention_heads. A configuration class without
/// the key writes it only where the size differs.
KeyRow head_dim(bool is_always_written);
/// GPT-2's head size, which has no key; its n_inner, where null means four times the hidden size;
/// scale_attn_weights.
KeyRow gpt2_head_dim();
KeyRow gpt2_mlp_width();
KeyRow gpt2_scale();
/// rope_parameters of transformers 5, rope_theta and rope_scaling of transformers 4.
KeyRow rope();
/// The dropout of the embedding, which training takes from `residual`.
KeyRow embedding_dropout(const std::string& key, const std::string& residual, double otherwise);
/// A boolean that must be false.
KeyRow always_false(const std::string& key);
/// attention_bias and mlp_bias, which must agree.
KeyRow equal_biases();

/// Which layers have a sliding window: all, all if use_sliding_window, or by layer_types, whose
/// default is all from max_window_layers on or every other one below it.
enum class Windows { every_layer, if_used, from_layer, alternating };
KeyRow sliding_window(Windows layers);

KeyRow experts_per_token();
/// intermediate_size of a family in which it is the width of an expert.
KeyRow expert_width();
/// decoder_sparse_step and mlp_only_layers, which say which layers have experts.
KeyRow expert_layers();
KeyRow aux_loss();
KeyRow router_jitter();

}  // namespace megatron
