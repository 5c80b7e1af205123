// Norms of the residual stream, fused with the operations beside them in a layer. Forward first
// adds the previous block's output through dropout; backward adds the stream's own gradient and
// applies the block's dropout mask. On the CPU each block of rows passes all steps while it is in
// L2.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/dropout.h"

namespace megatron {

/// The weights of a norm [columns] in compute_type(): LayerNorm when `bias` is defined, else
/// RMSNorm.
struct NormParams {
  at::Tensor weight, bias;
  double epsilon = 1e-5, offset = 0;  ///< `offset` is added to the weight
  static auto members(auto& p) { return std::tie(p.weight, p.bias, p.epsilon, p.offset); }
};

/// The branch that is added to the residual stream as dropout(x). `x` is contiguous, in the
/// stream's dtype or in a 16-bit dtype when the stream is float32.
struct DropoutBranch {
  at::Tensor x;  ///< backward does not read it
  DropoutSite site;
};

/// The result of norm_rows().
struct NormRows {
  at::Tensor sum;  ///< stream + dropout(branch), like the stream; the stream without a branch
  at::Tensor y;    ///< norm(sum)
  at::Tensor mean, rstd;  ///< [rows] in compute_type(); mean is undefined for RMSNorm
  static auto members(auto& r) { return std::tie(r.sum, r.y, r.mean, r.rstd); }
};
/// Computes the sum and its norm. `stream` is [s, b, h], or any shape without a branch; `branch`
/// may be null. `y` has dtype `type`: the stream's dtype, or a 16-bit dtype when the stream is
/// float32.
NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& params,
                   c10::ScalarType type);

/// The result of norm_rows_backward().
struct NormGradients {
  at::Tensor dsum;            ///< gradient of the stream: the norm's gradient plus `residual_grad`
  at::Tensor dbranch;         ///< in the dtype of dy; undefined without a branch
  at::Tensor dweight, dbias;  ///< [columns] in compute_type(); dbias is undefined for RMSNorm
  static auto members(auto& g) { return std::tie(g.dsum, g.dbranch, g.dweight, g.dbias); }
};
/// Backward of norm_rows(). `dy` is the gradient of y. `residual_grad` is the gradient of the sum
/// from its other consumers, or undefined.
NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& params);

}  // namespace megatron
