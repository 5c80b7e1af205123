// The fused row operations on tensors, whatever their device: the CPU's kernels here, an
// accelerator's from the table its plugin provides.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/row_operations.h"

namespace megatron {

/// Makes `operations` (which stays valid) the kernels of CUDA tensors; called once, when the plugin
/// has been loaded.
void register_cuda_row_operations(const kernels::RowOperations& operations);

/// The dtype in which sums and statistics of `storage` are kept: float64 for float64, else float32.
c10::ScalarType compute_type(c10::ScalarType storage);

/// Σ over the first dimension of [blocks, columns], each the sum over a block of rows: the gradient
/// of a weight that every row has its own part in.
at::Tensor reduce_row_blocks(const at::Tensor& blocks);

/// out = residual + dropout(x) over contiguous rows of the last dimension; `residual` undefined or
/// like out; out may be x.
void dropout_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& out,
                  const kernels::RowCoordinates& coordinates, const kernels::DropoutRule& rule);

struct RmsNormRows {
  at::Tensor y;     ///< like x
  at::Tensor rstd;  ///< [rows], compute_type
};
/// y = x·rstd·(weight + offset) in dtype `type` for contiguous x of that dtype, or of float32 above
/// 16 bits; weight in compute_type.
RmsNormRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, c10::ScalarType type,
                          double epsilon, double offset);

struct RmsNormGradients {
  at::Tensor dx;       ///< like x
  at::Tensor dweight;  ///< [columns], compute_type
};
RmsNormGradients rms_norm_rows_backward(const at::Tensor& dy, const at::Tensor& x,
                                        const at::Tensor& weight, const at::Tensor& rstd,
                                        double offset);

/// Rotary embedding: tables [s or s·b, rotary_dim / 2] of compute_type; `sign` −1 is the transpose.
struct Rotation {
  at::Tensor cos, sin;
  bool interleaved = false;
  double sign = 1;
};

/// x [s, b, n, d] rotated; contiguous result.
at::Tensor rotary_rows(const at::Tensor& x, const Rotation& rotation);

/// Copies heads, rotated unless `rotation` is null, on the CPU: either tensor [s, b, n, d] or [s,
/// b, g, r, d] with g·r = n, in any strides with unit last in `to`.
void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation);

}  // namespace megatron
