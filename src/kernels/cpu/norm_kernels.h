// LayerNorm and RMSNorm over rows on the CPU. A row's sums use sixteen fixed lanes, which are
// folded pairwise. The gradients of weight and bias are sums over fixed blocks of rows
// (column_sums.h).
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// LayerNorm: y = (x − mean)·rstd·(weight + offset) + bias with rstd = 1/√(variance + ε). The
/// variance is computed in a second pass over x − mean. If `mean` is null, this is RMSNorm: the
/// mean square replaces the variance, and there is no bias. Weights and statistics are f32 (f64
/// with f64).
struct NormArguments {
  const void *x, *weight, *bias;
  void *y, *mean, *rstd;  ///< mean and rstd are [rows]
  Type x_type, y_type;    ///< equal, or x is f32 and y 16 bits wide
  std::int64_t rows, columns;
  double epsilon, offset;
};

/// dx = gradient through the norm + residual_grad, rounded once. residual_grad has x's type and may
/// be null. The weight's gradient is Σ dy·(x − mean)·rstd over each block of rows, and that of the
/// bias Σ dy (without means there is none). Both are [blocks, columns] in f32 (f64).
struct NormBackwardArguments {
  const void *dy, *x, *weight, *mean, *rstd, *residual_grad;
  void *dx, *weight_blocks, *bias_blocks;
  Type x_type, y_type;  ///< x, residual_grad and dx have x_type; dy has y_type
  std::int64_t rows, columns;
  double offset;
};

/// The norm kernels of one instruction set.
struct NormKernels {
  /// Runs on rows [begin, end).
  void (*forward)(const NormArguments&, std::int64_t begin, std::int64_t end);
  /// Runs on blocks of rows.
  void (*backward)(const NormBackwardArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const NormKernels& norm_kernels();

}  // namespace megatron::kernels
