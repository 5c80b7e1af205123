// Fused row operations on tensors of any device: CPU kernels from kernels/cpu, CUDA kernels from
// the table that the CUDA plugin registers.
#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/row_operations.h"

namespace megatron {

/// Registers `operations` as the kernels of CUDA tensors. Called once, after the plugin has been
/// loaded. `operations` must stay valid.
void register_cuda_row_operations(const kernels::RowOperations& operations);

/// Returns the dtype that accumulates sums and statistics of `storage`: float64 for float64, else
/// float32.
c10::ScalarType compute_type(c10::ScalarType storage);

/// Returns the sum over the first dimension of [blocks, columns], where each row is already the sum
/// over a block of rows. Gradients of norm weights are reduced this way.
at::Tensor reduce_row_blocks(const at::Tensor& blocks);

/// Computes out = residual + dropout(x) over contiguous rows of the last dimension. `residual` is
/// undefined or has the shape and dtype of out. `out` may alias x.
void dropout_rows(const at::Tensor& x, const at::Tensor& residual, at::Tensor& out,
                  const kernels::RowCoordinates& coordinates, const kernels::DropoutRule& rule);

struct RmsNormRows {
  at::Tensor y;     ///< like x
  at::Tensor rstd;  ///< [rows], compute_type
};
/// Computes y = x·rstd·(weight + offset) in dtype `type`. `x` is contiguous, of dtype `type` or of
/// float32 when `type` is 16 bits wide. `weight` is in compute_type().
RmsNormRows rms_norm_rows(const at::Tensor& x, const at::Tensor& weight, c10::ScalarType type,
                          double epsilon, double offset);

struct RmsNormGradients {
  at::Tensor dx;       ///< like x
  at::Tensor dweight;  ///< [columns], compute_type
};
/// Backward of rms_norm_rows(), with its saved `rstd`.
RmsNormGradients rms_norm_rows_backward(const at::Tensor& dy, const at::Tensor& x,
                                        const at::Tensor& weight, const at::Tensor& rstd,
                                        double offset);

/// Arguments of the rotary kernels. The tables are [s or s·b, rotary_dim / 2] in compute_type();
/// `sign` −1 applies the transposed rotation.
struct Rotation {
  at::Tensor cos, sin;
  bool interleaved = false;
  double sign = 1;
};

/// Returns x [s, b, n, d] rotated, as a contiguous tensor.
at::Tensor rotary_rows(const at::Tensor& x, const Rotation& rotation);

/// Copies heads on the CPU and rotates them unless `rotation` is null. Each tensor is [s, b, n, d]
/// or [s, b, g, r, d] with g·r = n. Strides are arbitrary, but the last stride of `to` is 1.
void copy_heads(const at::Tensor& from, at::Tensor& to, const Rotation* rotation);

}  // namespace megatron
