// Values that follow from others: Megatron-LM's defaults that depend on the rest of the settings.
#pragma once

#include <array>
#include <optional>

#include "megatron/config/settings.h"

namespace megatron {

/// Fills ffn_hidden_size, kv_channels, num_query_groups, window_layers and the kind of rope
/// scaling. Values already given stay. Leaves alone what depends on a size that is still 0.
void resolve(TransformerConfig& model);

/// resolve(model), and: global_batch_size = micro_batch_size × data_parallel_size, or the last of
/// the step schedule; max_position_embeddings = seq_length unless given; train_iters from
/// train_samples; split = "969, 30, 1" with data; mock data with "1,1,1" without; model.vocab_size
/// = the
/// --padded-vocab-size, else the tokenizer's --vocab-size, unless given; no sequence parallelism
/// without tensor parallelism.
void resolve(Settings& settings, std::int64_t data_parallel_size = 1);

/// The shares of a --split such as "969, 30, 1" or "98/2/0": one to three numbers that are not all
/// 0; missing ones are 0. Not normalised.
std::optional<std::array<double, 3>> split_weights(const std::string& split);

}  // namespace megatron
