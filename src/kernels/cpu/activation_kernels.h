// Activations of the feed-forward block with the bias in front of them, on the CPU. Each
// instruction set has its table, and every element of f32 and 16-bit rows takes the same steps in
// all of them.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

enum class ActivationKind : std::uint8_t { gelu, gelu_tanh, relu, squared_relu, silu, quick_gelu };

/// y = f(x + bias), or gated f(gate + bias)·(up + bias) for rows [gate | up] of x. `bias` is in f32
/// (f64 with f64), one number for each column of x.
struct ActivationArguments {
  const void *x, *bias;
  void* y;
  Type type;
  std::int64_t rows, columns;  ///< of y; x has twice the columns when gated
  ActivationKind kind;
  bool gated;
};

/// dx, into `bias_blocks` (may be null) the sum of dx before rounding over each block of
/// kRowsPerBlock rows, [blocks, columns of x] in f32 (f64), and into `y` (may be null) what forward
/// gave, the same bits.
struct ActivationBackwardArguments {
  const void *dy, *x, *bias;
  void *dx, *bias_blocks, *y;
  Type type;
  std::int64_t rows, columns;  ///< of dy
  ActivationKind kind;
  bool gated;
};

struct ActivationKernels {
  void (*forward)(const ActivationArguments&, std::int64_t begin,
                  std::int64_t end);  ///< rows [begin, end)
  void (*backward)(const ActivationBackwardArguments&, std::int64_t begin,
                   std::int64_t end);  ///< blocks of rows
};

/// The table for this CPU.
const ActivationKernels& activation_kernels();

}  // namespace megatron::kernels
