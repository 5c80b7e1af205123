// Kernels over rows of contiguous numbers, behind raw pointers. Each instruction set has its table; `row_kernels()` picks at run time.
// Sums use sixteen fixed lanes, so results do not depend on the instruction set.
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// Which rows of a random site the caller's rows are: element index of a row's first column, and its sample's ordinal.
struct RowCoordinates {
  const std::uint64_t* first_element;
  const std::uint64_t* ordinal;
};

struct DropoutRule {
  std::uint64_t key;
  std::uint32_t threshold;  ///< keep iff the 32-bit draw ≥ threshold = ⌊p·2³²⌋
  double scale;             ///< of kept values: 1 / (1 − p)
};

/// Rotary embedding of [tokens, heads, head_dim]: strides in elements, tables [rows, rotary_dim / 2]; token t uses table row t / tokens_per_row.
struct RotaryShape {
  std::int64_t tokens, heads, head_dim, rotary_dim;
  std::int64_t token_stride, head_stride;  ///< of the input; the output is contiguous
  std::int64_t tokens_per_row;
  bool interleaved;
  double sign;  ///< +1 forward, −1 backward (the transpose)
};

template <class T>
struct RowKernels {
  /// out = residual + keep·scale·x; residual may be null, out may be x.
  void (*dropout)(const T* x, const T* residual, T* out, std::int64_t rows, std::int64_t columns, RowCoordinates coordinates, DropoutRule rule);
  /// y = x·rstd·(weight + offset), rstd = 1/√(mean(x²) + ε) per row.
  void (*rms_norm)(const T* x, const T* weight, T* y, T* rstd, std::int64_t rows, std::int64_t columns, double epsilon, double offset);
  void (*rms_norm_backward_input)(const T* dy, const T* x, const T* weight, const T* rstd, T* dx, std::int64_t rows, std::int64_t columns,
                                  double offset);
  /// dweight[c] = Σ over all rows of dy·x·rstd for columns [begin, end) of `columns`; rows added in ascending order.
  void (*rms_norm_backward_weight)(const T* dy, const T* x, const T* rstd, T* dweight, std::int64_t rows, std::int64_t columns, std::int64_t begin,
                                   std::int64_t end);
  void (*rotary)(const T* x, const T* cos, const T* sin, T* out, const RotaryShape& shape);
};

/// The table for this processor.
template <class T>
const RowKernels<T>& row_kernels();

}  // namespace megatron::kernels
