// Rows for the keys of config.json that need code: their defaults depend on other keys, or several
// keys make one setting.
#pragma once

#include "megatron/models/hf/hf_config.h"

namespace megatron {

/// The heads, with rotary positions: num_key_value_heads (a default of 0 means as many as heads),
/// head_dim (0: hidden_size / num_attention_heads; a configuration class without the key writes it
/// only where the size differs), rope_parameters or rope_theta and rope_scaling.
KeyRows attention_keys(bool writes_head_dim);

/// Which layers have a sliding window: all, all if use_sliding_window, or by layer_types, whose
/// default is all from max_window_layers on or every other one below it.
enum class Windows { every_layer, if_used, from_layer, alternating };
KeyRow sliding_window(Windows layers);

/// The dropouts. Training takes that of the embedding from `residual`.
KeyRows dropout_keys(const std::string& attention, const std::string& residual,
                     const std::string& embedding);
/// A boolean that must be false.
KeyRow always_false(const std::string& key);
/// decoder_sparse_step and mlp_only_layers, which say which layers have experts.
KeyRow expert_layers();
KeyRow aux_loss();

/// Returns the size of a head. Throws UserError unless the heads divide the hidden size.
std::int64_t even_head_dim(const ConfigReader& config, const std::string& hidden,
                           const std::string& heads);

}  // namespace megatron
