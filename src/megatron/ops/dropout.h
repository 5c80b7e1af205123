// Dropout by coordinates. The mask of an element depends on its place in the global model and
// sample, never on the parallel layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "kernels/row_operations.h"
#include "megatron/ops/random_site.h"

namespace megatron {

/// Returns the kernels' dropout rule for a site. The rule of an inactive site keeps every element
/// unchanged.
kernels::DropoutRule dropout_rule(const DropoutSite& site);

/// Returns the coordinates of the rows of hidden states [s, b, h], or empty coordinates for an
/// inactive site. Throws InternalError unless the site has one ordinal per sample, and one position
/// per row or none, on the device of `hidden`.
kernels::RowCoordinates hidden_coordinates(const at::Tensor& hidden, const DropoutSite& site);

/// Returns residual + dropout(x) for x and residual [s, b, h]; differentiable. The random element
/// index is position·h + feature. With n streams, [s, b, n, h], a row has n·h features.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site);

/// Returns dropout(x) with the element indices of dropout_add(); differentiable.
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site);

/// Returns dropout(x) in dtype `type` without recording a gradient. Backward functions use it to
/// pass a gradient through dropout.
at::Tensor dropout_as(const at::Tensor& x, c10::ScalarType type, const DropoutSite& site);

/// Returns a pointer to the ordinals of the `samples` samples in x, on the device of x. Throws
/// InternalError when the site's ordinals have another count or device.
const std::int64_t* dropout_ordinals(const DropoutSite& site, const at::Tensor& x,
                                     std::int64_t samples);

/// The place of a block of attention scores in the per-sample scores [all heads, total_q, total_k].
struct ScoreBlock {
  std::int64_t first_head = 0;
  std::int64_t q_start = 0, total_q = 0, k_start = 0, total_k = 0;
  static auto members(auto& b) {
    return std::tie(b.first_head, b.q_start, b.total_q, b.k_start, b.total_k);
  }
};

/// Applies dropout in place to a contiguous block of attention probabilities [b, n, q, k]. It is
/// not differentiable: attention calls it in both passes.
void dropout_scores_(at::Tensor& probabilities, const DropoutSite& site, const ScoreBlock& block);

}  // namespace megatron
