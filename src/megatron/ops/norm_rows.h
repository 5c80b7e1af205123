// The CPU's norms on tensors, joined with what stands next to a norm in a layer: the sum of the
// residual stream and a block's output before it, the stream's own gradient and the block's dropout
// mask in the backward pass. A block of rows goes through all of it while it is in the cache.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/row_operations.h"

namespace megatron {

/// LayerNorm, or RMSNorm without a bias. Tensors [columns] of compute_type.
struct NormParams {
  at::Tensor weight, bias;
  double epsilon = 1e-5, offset = 0;
};

/// What is added to the stream: dropout(x), x contiguous, like the stream or 16 bits wide above
/// float32.
struct DropoutBranch {
  at::Tensor x;
  kernels::RowCoordinates coordinates;
  kernels::DropoutRule rule;
};

struct NormRows {
  at::Tensor
      sum;  ///< like the stream: stream + dropout(branch), or the stream itself without a branch
  at::Tensor y;           ///< norm(sum)
  at::Tensor mean, rstd;  ///< [rows], compute_type; mean undefined with RMSNorm
};
/// `stream` contiguous on the CPU, `branch` may be null; y in dtype `type`, equal to the stream's
/// or 16 bits wide above float32.
NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& formula,
                   c10::ScalarType type);

struct NormGradients {
  at::Tensor dsum;     ///< through the norm, plus `residual_grad`: the gradient of the stream
  at::Tensor dbranch;  ///< with a branch (whose x is not read): of its dtype
  at::Tensor dweight, dbias;  ///< [columns], compute_type; dbias undefined with RMSNorm
};
/// Of norm_rows, from dy and `residual_grad`, the gradient of the sum from elsewhere, or undefined;
/// all contiguous.
NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& formula);

}  // namespace megatron
