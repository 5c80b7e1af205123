// Activations of the feed-forward block on the CPU, fused with the bias in front of them. Elements
// of f32 and 16-bit rows take the same steps on every instruction set.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/type.h"

namespace megatron::kernels {

enum class ActivationKind : std::uint8_t { gelu, gelu_tanh, relu, squared_relu, silu, quick_gelu };

/// The form of an activation. Gated forms take gate ≤ clamp and |up| ≤ clamp and add
/// `linear_offset` to up; the others ignore both.
struct ActivationForm {
  ActivationKind kind;
  bool gated;
  double clamp = std::numeric_limits<double>::infinity(), linear_offset = 0;
};

/// y = w·f(x + bias). Gated: y = w·f(gate + bias)·(up + bias), where rows of x are [gate | up].
/// `bias` and `weights` are f32 (f64 with f64). `bias` has one number for each column of x.
struct ActivationArguments {
  const void *x, *bias;
  const void* weights;  ///< w of each row; null: 1
  void* y;
  Type type;
  std::int64_t rows, columns;  ///< columns of y; x has twice as many when gated
  ActivationForm form;
};

/// Backward of ActivationArguments. Writes dx. If `bias_blocks` is not null, it receives the sums
/// of dx before rounding over blocks of kRowsPerBlock rows, [blocks, columns of x] in f32 (f64). If
/// `y` is not null, it receives the result of forward, with the same bits.
struct ActivationBackwardArguments {
  const void *dy, *x, *bias;
  const void* weights;
  void *dx, *bias_blocks, *y;
  void* dweights;  ///< gradient of the weights of the rows; written if `weights` is not null
  Type type;
  std::int64_t rows, columns;  ///< columns of dy
  ActivationForm form;
};

/// The activation kernels of one instruction set.
struct ActivationKernels {
  /// Runs on rows [begin, end).
  void (*forward)(const ActivationArguments&, std::int64_t begin, std::int64_t end);
  /// Runs on blocks of rows.
  void (*backward)(const ActivationBackwardArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const ActivationKernels& activation_kernels();

}  // namespace megatron::kernels
