// Fused operations over rows of contiguous numbers as plain arguments: the contract between layers
// and the kernels of each device (src/kernels/cpu, src/kernels/cuda). Storage types vary;
// arithmetic is in f32 (f64 where storage is f64), rounded once at the end.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// Where the rows of a random site lie. Row r = (outer·middle + m)·inner + i starts at element
/// base + outer·outer_step + m·middle_step + i·inner_step of its sample, which is number i
/// (`sample_is_inner`) or number `outer`.
struct RowCoordinates {
  const std::int64_t* ordinals;  ///< of the samples, on the tensors' device
  std::int64_t middle, inner;
  std::uint64_t base, outer_step, middle_step, inner_step;
  bool sample_is_inner;
};

struct DropoutRule {
  std::uint64_t key;
  std::uint32_t threshold;  ///< keep iff the 32-bit draw ≥ threshold = ⌊p·2³²⌋
  double scale;             ///< of kept values: 1 / (1 − p)
};

/// out = residual + keep·scale·x, both of out's type or residual null; out may be x.
struct DropoutArguments {
  const void *x, *residual;
  void* out;
  Type x_type, out_type;  ///< equal, or one of them f32 and the other 16 bits wide
  std::int64_t rows, columns;
  RowCoordinates coordinates;
  DropoutRule rule;
};

/// y = x·rstd·(weight + offset), rstd = 1/√(mean(x²) + ε) per row; weight [columns] in f32 (f64
/// with f64).
struct RmsNormArguments {
  const void *x, *weight;
  void *y, *rstd;       ///< rstd [rows] in f32 (f64 with f64)
  Type x_type, y_type;  ///< equal, or x in f32 and y 16 bits wide
  std::int64_t rows, columns;
  double epsilon, offset;
};

/// dx and dweight[c] = Σ over rows of dy·x·rstd, overwritten; weight and dweight in f32 (f64 with
/// f64).
struct RmsNormBackwardArguments {
  const void *dy, *x, *weight, *rstd;
  void *dx, *dweight;
  Type x_type, y_type;  ///< of x and dx; of dy
  std::int64_t rows, columns;
  double offset;
};

/// Rotary embedding of x [tokens, heads, head_dim] (strides in elements, unit last) to a contiguous
/// out; tables [rows, rotary_dim / 2] in f32 (f64 with f64); token t uses table row t /
/// tokens_per_row. out may not be x.
struct RotaryArguments {
  const void *x, *cos, *sin;
  void* out;
  Type type;
  std::int64_t tokens, heads, head_dim, rotary_dim;
  std::int64_t token_stride, head_stride;
  std::int64_t tokens_per_row;
  bool interleaved;  ///< pairs (2i, 2i + 1), else (i, i + rotary_dim / 2)
  double sign;       ///< +1 forward, −1 backward (the transpose)
};

/// The kernels of an accelerator: they queue their work on the calling thread's current stream and
/// do not wait for it.
struct RowOperations {
  void (*dropout)(const DropoutArguments&);
  void (*rms_norm)(const RmsNormArguments&);
  void (*rms_norm_backward)(const RmsNormBackwardArguments&);
  void (*rotary)(const RotaryArguments&);
};

}  // namespace megatron::kernels
