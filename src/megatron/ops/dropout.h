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

/// Returns the coordinates of the rows of a hidden tensor [s, b, h] within their samples; `s_start`
/// is the position of its first row. Returns empty coordinates for an inactive site.
kernels::RowCoordinates hidden_coordinates(const at::Tensor& shape, const DropoutSite& site,
                                           std::int64_t s_start);

/// Returns residual + dropout(x) for x and residual [s, b, h]. The random element index is
/// position·h + feature, and positions count from `s_start`.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, const DropoutSite& site,
                       std::int64_t s_start = 0);

/// Returns dropout(x) for x [s, b, h], with the element indices of dropout_add().
at::Tensor dropout(const at::Tensor& x, const DropoutSite& site, std::int64_t s_start = 0);

/// Returns a pointer to the ordinals of the `samples` samples in x, on the device of x. Throws
/// InternalError when the site's ordinals have another count or device.
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
