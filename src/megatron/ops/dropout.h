// Dropout by coordinates. The mask of an element depends on its place in the global model and
// sample, never on the parallel layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/row_operations.h"
#include "megatron/ops/random_site.h"

namespace megatron {

/// The rule of a site; an inactive one keeps every element.
kernels::DropoutRule dropout_rule(const DropoutSite& site);

/// The coordinates of the rows of hidden states shaped [s, b, h] whose first position is `s_start`.
/// Empty for an inactive site. Throws unless the site has one ordinal per sample on the device of
/// `hidden`.
kernels::RowCoordinates hidden_coordinates(const at::Tensor& hidden, const DropoutSite& site,
                                           std::int64_t s_start);

/// Returns residual + dropout(x) for x, residual [s, b, h], differentiable. The element of a number
/// is position·h + feature, with positions counted from `s_start`.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site,
                       std::int64_t s_start = 0);

/// Returns dropout(x) for x [s, b, h], differentiable.
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start = 0);

/// dropout() without a gradient, in dtype `type`: a backward function's pass through a dropout.
at::Tensor dropout_as(const at::Tensor& x, c10::ScalarType type, const DropoutSite& site,
                      std::int64_t s_start);

/// The ordinals of the `samples` in x, on its device.
const std::int64_t* dropout_ordinals(const DropoutSite& site, const at::Tensor& x,
                                     std::int64_t samples);

/// The place of a block of attention scores in the per-sample scores [all heads, total_q, total_k].
struct ScoreBlock {
  std::int64_t first_head = 0;
  std::int64_t q_start = 0, total_q = 0, k_start = 0, total_k = 0;
};

/// Applies dropout in place to a contiguous block of attention probabilities [b, n, q, k]. It is
/// not differentiable: attention calls it in both passes.
void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block);

}  // namespace megatron
