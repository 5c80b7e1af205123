// Norms of the residual stream, fused with what stands next to a norm in a layer: forward adds the
// output of the block before it, through dropout; backward adds the stream's own gradient and
// applies the block's dropout mask. On the CPU a block of rows passes all steps while it is in L2.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/random_site.h"

namespace megatron {

/// The weights of a norm [columns], in compute_type: LayerNorm with a bias, RMSNorm without.
struct NormParams {
  at::Tensor weight, bias;
  double epsilon = 1e-5, offset = 0;  ///< `offset` is added to the weight
};

/// What is added to the stream: dropout(x), where x is like the stream, or 16 bits wide above a
/// float32 stream. Without an active site x is added as it is.
struct DropoutBranch {
  at::Tensor x;  ///< not read by backward
  DropoutSite site;
  std::int64_t s_start = 0;  ///< position of the first row
};

/// The result of norm_rows().
struct NormRows {
  at::Tensor sum;  ///< stream + dropout(branch), like the stream; the stream without a branch
  at::Tensor y;    ///< norm(sum)
  at::Tensor mean, rstd;  ///< [rows], compute_type; mean is undefined with RMSNorm
};
/// stream [s, b, h], or any shape without a branch; `branch` may be null. Returns y in dtype
/// `type`: the stream's, or 16 bits wide above a float32 stream.
NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& params,
                   c10::ScalarType type);

/// The result of norm_rows_backward().
struct NormGradients {
  at::Tensor dsum;            ///< through the norm, plus `residual_grad`: the stream's gradient
  at::Tensor dbranch;         ///< in the dtype of dy; undefined without a branch
  at::Tensor dweight, dbias;  ///< [columns], compute_type; dbias is undefined with RMSNorm
};
/// Backward of norm_rows(). `residual_grad` is the gradient of the sum from elsewhere, or
/// undefined.
NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& params);

}  // namespace megatron
