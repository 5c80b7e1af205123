// Causal depthwise convolution: each channel of a row is a sum over the same channel of that row
// and of the rows before it in its sequence. The layers of Mamba and of the gated delta rule pass
// their inputs through it.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/row_pieces.h"

namespace megatron {

struct CausalConvOptions {
  bool silu = true;  ///< applies SiLU to the sum
  RowPieces pieces = {};
  /// [pieces, c, w − 1] in the dtype of x: the last inputs before each piece, the latest one last;
  /// undefined for zeros. No gradient flows into it.
  at::Tensor initial_states = {};
  bool wants_final_states = false;
};

struct CausalConvResult {
  at::Tensor out;           ///< like x, contiguous
  at::Tensor final_states;  ///< like initial_states: the last inputs of each piece, if wanted
  static auto members(auto& r) { return std::tie(r.out, r.final_states); }
};

/// Returns out_t = act(bias + Σ_i weight[:, i]·x_{t−(w−1)+i}) for x [s, b, c] whose channels are
/// contiguous, such as a slice of a projection. `weight` [c, w], w ≤ kMostConvTaps, and `bias` [c]
/// (or undefined) have any floating dtype; sums are in compute_type() and rounded once.
/// Differentiable in x, weight and bias; the gradients of the last two are in compute_type().
CausalConvResult causal_conv(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const CausalConvOptions& options);

}  // namespace megatron
