// Recomputes attention scores to diagnose a non-finite attention output, because attention does not
// store them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "megatron/training/resilience/diagnosis/tensor_statistics.h"

namespace megatron {

struct TransformerConfig;

struct NonFiniteScores {
  std::int64_t sample = 0;  ///< row of the microbatch
  std::int64_t head = 0;
  TensorStatistics statistics;  ///< of the scores [query, key] of this sample and head
};

/// Returns the first sample and head in which scale·query·keyᵀ, computed in the tensors' dtype and
/// restricted to the causal mask, is not finite. Returns nullopt when all scores are finite, or
/// when query or key are not finite themselves. query [s, b, n, d], key [s, b, g, d].
std::optional<NonFiniteScores> non_finite_scores(const at::Tensor& query, const at::Tensor& key,
                                                 const TransformerConfig& config);

}  // namespace megatron
