// Dropout by coordinates: the mask of an element depends on its place in the global model and sample, never on the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "megatron/transformer/random_site.h"

namespace megatron {

/// residual + dropout(x) for x, residual [s, b, h]; element = position·h + feature, position counted from `s_start`.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site, std::int64_t s_start = 0);

/// dropout(x) for x [s, b, h].
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start = 0);

/// Drops in place from a block of attention probabilities [b, n, q, k] (contiguous) whose first row and column are `q_start` and `k_start`
/// of per-sample scores [n, total_q, total_k]; its heads are the first of the model. Not differentiable: attention calls it in both passes.
void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, std::int64_t q_start, std::int64_t total_q, std::int64_t k_start,
                     std::int64_t total_k);

}  // namespace megatron
