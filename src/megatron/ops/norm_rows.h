// Fused residual add, dropout and norm on the CPU. The forward pass computes sum = stream +
// dropout(branch) and norm(sum) block of rows by block of rows, so that each row stays in cache.
// The backward pass adds the gradient of the residual stream and applies the dropout mask in the
// same pass.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/row_operations.h"

namespace megatron {

/// Weights and constants of LayerNorm, or of RMSNorm when `bias` is undefined. The tensors are
/// [columns] of compute_type(). The effective weight is weight + offset.
struct NormParams {
  at::Tensor weight, bias;
  double epsilon = 1e-5, offset = 0;
};

/// The branch that is added to the residual stream as dropout(x). `x` is contiguous, in the
/// stream's dtype or in a 16-bit dtype when the stream is float32.
struct DropoutBranch {
  at::Tensor x;
  kernels::RowCoordinates coordinates;
  kernels::DropoutRule rule;
};

/// The result of norm_rows().
struct NormRows {
  /// `stream` + dropout(branch), or the stream itself when there is no branch; shaped like the
  /// stream.
  at::Tensor sum;
  at::Tensor y;           ///< norm(sum)
  at::Tensor mean, rstd;  ///< [rows] in compute_type(); mean is undefined for RMSNorm
};
/// Computes the sum and its norm. `stream` is contiguous and on the CPU; `branch` may be null. `y`
/// has dtype `type`, which is the stream's dtype or a 16-bit dtype when the stream is float32.
NormRows norm_rows(const at::Tensor& stream, const DropoutBranch* branch, const NormParams& formula,
                   c10::ScalarType type);

/// The result of norm_rows_backward().
struct NormGradients {
  at::Tensor dsum;            ///< gradient of the stream: the norm's gradient plus `residual_grad`
  at::Tensor dbranch;         ///< defined when there is a branch; has its dtype
  at::Tensor dweight, dbias;  ///< [columns] in compute_type(); dbias is undefined for RMSNorm
};
/// Backward of norm_rows(). `dy` is the gradient of y. `residual_grad` is the gradient of the sum
/// from its other consumers, or undefined. All tensors are contiguous. The `x` of `branch` is not
/// read.
NormGradients norm_rows_backward(const at::Tensor& dy, const at::Tensor& residual_grad,
                                 const NormRows& rows, const DropoutBranch* branch,
                                 const NormParams& formula);

}  // namespace megatron
