// Attention does not keep its scores; when its output is not finite, they are made again for a look
// at them.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "megatron/config/transformer_config.h"
#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

namespace megatron {

struct NonFiniteScores {
  std::int64_t sample = 0;  ///< row of the microbatch
  std::int64_t head = 0;
  TensorStatistics statistics;  ///< of the scores [query, key] of that sample and head
};

/// The first sample and head in which scale·query·keyᵀ, in the tensors' own dtype and below the
/// diagonal, is not finite; nothing when all are, or when query or key are not finite themselves.
/// query [s, b, n, d], key [s, b, g, d].
std::optional<NonFiniteScores> non_finite_scores(const at::Tensor& query, const at::Tensor& key,
                                                 const TransformerConfig& config);

}  // namespace megatron
