// Causal depthwise convolution over raw memory: out_t = act(bias + Σ_i w_i·x_{t−(taps−1)+i}) in
// each channel, where act is SiLU or nothing. Sums add the bias first, then the taps in order, so a
// row's result does not depend on the blocks.
#pragma once

#include <cstdint>

#include "kernels/row_piece.h"
#include "kernels/type.h"

namespace megatron::kernels {

inline constexpr std::int64_t kConvTaps = 8;        ///< at most
inline constexpr std::int64_t kConvBlockRows = 32;  ///< at most

/// Rows [begin, end) of a piece.
struct ConvBlock {
  std::int64_t piece, begin, end;
};

/// "Wide" numbers are f64 if `type` is, else f32. x [s, b, channels] has contiguous channels.
struct CausalConvArguments {
  Type type;
  const void* x;
  std::int64_t row_stride, column_stride;
  std::int64_t b, channels, taps;
  bool silu;
  const void *weight, *bias;   ///< wide [taps, channels] and [channels]; bias may be null
  const void* initial_states;  ///< like x [pieces, channels, taps − 1], or null for zeros
  const RowPiece* pieces;
  const ConvBlock* blocks;
};

/// The last inputs of each piece become its final state.
struct CausalConvForwardArguments : CausalConvArguments {
  void* out;           ///< like x, contiguous
  void* final_states;  ///< like initial_states, or null
};

struct CausalConvBackwardArguments : CausalConvArguments {
  const void* dout;  ///< like x, contiguous
  void* dx;          ///< like x, contiguous
  void* sums;        ///< wide [blocks, taps + 1, channels]: gradients of the weight and the bias
};

struct CausalConvKernels {
  /// Run on blocks [begin, end). Rows in no piece are not written.
  void (*forward)(const CausalConvForwardArguments&, std::int64_t begin, std::int64_t end);
  void (*backward)(const CausalConvBackwardArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const CausalConvKernels& causal_conv_kernels();

}  // namespace megatron::kernels
