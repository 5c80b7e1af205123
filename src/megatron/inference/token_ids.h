// Validates token ids against a model's vocabulary and maximum length.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace megatron {

struct TransformerConfig;

/// Returns the maximum number of tokens in a sequence: max_position_embeddings with learned
/// positions, otherwise the largest int64 (no limit).
std::int64_t max_sequence_length(const TransformerConfig& model);

/// Throws UserError naming `source` when `ids` is empty, an id is outside the model's vocabulary,
/// or the sequence exceeds the learned positions.
void check_token_ids(std::span<const std::int64_t> ids, const TransformerConfig& model,
                     const std::string& source);

/// Returns a warning when the sequence `source` has more tokens than the model was trained for and
/// its positions are unlimited (rotary or none); "" otherwise.
std::string long_sequence_warning(const TransformerConfig& model, std::int64_t length,
                                  const std::string& source);

}  // namespace megatron
