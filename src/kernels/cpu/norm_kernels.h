// LayerNorm and RMSNorm over rows on the CPU. Each instruction set has its table. A row's sums use
// sixteen fixed lanes folded pairwise; the gradients of weight and bias are sums of fixed blocks of
// rows (column_sums.h).
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// y = (x − mean)·rstd·(weight + offset) + bias with rstd = 1/√(variance + ε); without means (null,
/// and then without a bias) the root mean square takes the variance's place. The variance is a
/// second pass over x − mean. Weights and statistics in f32 (f64 with f64).
struct NormArguments {
  const void *x, *weight, *bias;
  void *y, *mean, *rstd;  ///< mean, rstd [rows]
  Type x_type, y_type;    ///< equal, or x in f32 and y 16 bits wide
  std::int64_t rows, columns;
  double epsilon, offset;
};

/// dx = gradient through the norm + residual_grad (of x's type, may be null), rounded once. Sums
/// over each block of rows of dy·(x − mean)·rstd and, where there are means, of dy, both [blocks,
/// columns] in f32 (f64).
struct NormBackwardArguments {
  const void *dy, *x, *weight, *mean, *rstd, *residual_grad;
  void *dx, *weight_blocks, *bias_blocks;
  Type x_type, y_type;  ///< of x, residual_grad and dx; of dy
  std::int64_t rows, columns;
  double offset;
};

struct NormKernels {
  void (*forward)(const NormArguments&, std::int64_t begin,
                  std::int64_t end);  ///< rows [begin, end)
  void (*backward)(const NormBackwardArguments&, std::int64_t begin,
                   std::int64_t end);  ///< blocks of rows
};

/// The table for this CPU.
const NormKernels& norm_kernels();

}  // namespace megatron::kernels
