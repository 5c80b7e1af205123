// Dropout by coordinates: the mask of an element depends on its place in the global model and
// sample, never on the layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/row_operations.h"
#include "megatron/ops/random_site.h"

namespace megatron {

/// The rule of a site; an inactive one keeps everything as it is.
kernels::DropoutRule dropout_rule(const DropoutSite& site);

/// Where rows of hidden numbers shaped [s, b, h], whose first position is `s_start`, lie in the
/// samples. Nothing for an inactive site.
kernels::RowCoordinates hidden_coordinates(const at::Tensor& shape, const DropoutSite& site,
                                           std::int64_t s_start);

/// residual + dropout(x) for x, residual [s, b, h]; element = position·h + feature, position
/// counted from `s_start`.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site,
                       std::int64_t s_start = 0);

/// dropout(x) for x [s, b, h].
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start = 0);

/// The ordinals of the `samples` in x, on its device.
const std::int64_t* dropout_ordinals(const DropoutSite& site, const at::Tensor& x,
                                     std::int64_t samples);

/// Where a block of attention scores lies in the per-sample scores [all heads, total_q, total_k].
struct ScoreBlock {
  std::int64_t first_head = 0;
  std::int64_t q_start = 0, total_q = 0, k_start = 0, total_k = 0;
};

/// Drops in place from a block of attention probabilities [b, n, q, k] (contiguous). Not
/// differentiable: attention calls it in both passes.
void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block);

}  // namespace megatron
