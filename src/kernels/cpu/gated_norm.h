// RMSNorm with a gate over raw memory: norm(x·silu(z))·w, or norm(x)·w·silu(z) when the norm comes
// before the gate, with norm(h) = h / √(mean h² + ε) in each group of columns. Gradients of the
// weight are sums over fixed blocks of rows (column_sums.h).
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// A tensor [s, b, columns] by its strides, in elements. Columns are contiguous.
struct RowsView {
  const void* data;
  std::int64_t row_stride, column_stride;
};

struct GatedNormArguments {
  Type type;
  RowsView x, z;
  std::int64_t b, rows, columns, group_size;  ///< `rows` is s·b
  const void* weight;  ///< f64 if `type` is, else f32: [columns], or [group_size] for all groups
  bool shares_weight, norm_before_gate;
  double epsilon, offset;  ///< `offset` is added to the weight
};

struct GatedNormForwardArguments : GatedNormArguments {
  void* y;  ///< like x, contiguous
};

struct GatedNormBackwardArguments : GatedNormArguments {
  const void* dy;       ///< like x, contiguous
  void *dx, *dz;        ///< like x, contiguous
  void* weight_blocks;  ///< [blocks, columns] in the weight's type, without sharing
};

struct GatedNormKernels {
  /// Runs on rows [begin, end).
  void (*forward)(const GatedNormForwardArguments&, std::int64_t begin, std::int64_t end);
  /// Runs on blocks of rows.
  void (*backward)(const GatedNormBackwardArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const GatedNormKernels& gated_norm_kernels();

}  // namespace megatron::kernels
