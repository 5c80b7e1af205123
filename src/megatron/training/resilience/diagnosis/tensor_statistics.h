// Computes statistics of a tensor for diagnosis: magnitude, number of non-finite elements, and the
// position of the first one; of attention scores too, which the kernels never store.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/params/sharding.h"

namespace megatron {

struct TransformerConfig;

struct TensorStatistics {
  Shape shape = {};
  std::int64_t num_nan = 0, num_inf = 0;
  double rms = 0, max_abs = 0;  ///< over the finite elements
  /// Index of the first non-finite element; empty if none (or for a scalar).
  Shape first_bad = {};
  bool finite() const { return num_nan + num_inf == 0; }
  std::int64_t num_elements() const;
};

/// Computes the statistics of a floating-point tensor on any device; reads every element once.
TensorStatistics tensor_statistics(const at::Tensor& tensor);

/// Returns "3 NaN and 1 Inf among 2048 elements, the first at [5, 1, 12]; the others reach 1.2e+38"
/// or "finite: rms 1.0, max 3.1".
std::string describe(const TensorStatistics& statistics);

/// Returns the indices along `dim` that contain a non-finite element, in ascending order.
std::vector<std::int64_t> non_finite_indices(const at::Tensor& tensor, std::int64_t dim);

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
