// RMSNorm with a gate, behind the state-space scan and the gated delta rule.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

namespace megatron {

struct GatedNormOptions {
  std::int64_t group_size = 0;  ///< columns that are normalised together; they divide the row
  /// norm(x)·w·silu(z) as in the gated delta net; else norm(x·silu(z))·w as in Mamba-2.
  bool norm_before_gate = false;
  double epsilon = 1e-5, offset = 0;  ///< `offset` is added to the weight
  static auto members(auto& o) {
    return std::tie(o.group_size, o.norm_before_gate, o.epsilon, o.offset);
  }
};

/// Returns the gated norm of x [s, b, …, columns] in its dtype, where norm(h) = h / √(mean h² + ε)
/// in each group of columns. z has the shape and dtype of x. `weight` has any floating dtype, and
/// one number for each column of [s, b] or for each column of a group. Arithmetic is in
/// compute_type(), rounded once. Differentiable in x, z and weight; the gradient of the weight is
/// in compute_type(). Backward keeps x, z and the weight.
at::Tensor gated_norm(const at::Tensor& x, const at::Tensor& z, const at::Tensor& weight,
                      const GatedNormOptions& options);

}  // namespace megatron
