// Token ids on their way into a model: checked against its vocabulary and its positions, and as a
// tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>

#include "megatron/config/settings.h"

namespace megatron {

/// How many tokens one sequence may have: max_position_embeddings with learned positions, otherwise
/// no limit (the largest int64).
std::int64_t max_sequence_length(const TransformerConfig& model);

/// UserError naming `source` when there is no id, an id is outside the model's vocabulary, or
/// learned positions do not reach that far.
void check_token_ids(std::span<const std::int64_t> ids, const TransformerConfig& model,
                     const std::string& source);

/// What to tell a user whose sequence `source` has more tokens than the model was trained for,
/// where positions have no end (rotary or none); empty when it has not.
std::string long_sequence_warning(const TransformerConfig& model, std::int64_t length,
                                  const std::string& source);

/// int64 [1, ids.size()], a copy.
at::Tensor token_tensor(std::span<const std::int64_t> ids);

}  // namespace megatron
