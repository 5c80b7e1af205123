// Linear attention with a decaying state: the state-space scan of Mamba-2 (Dao & Gu 2024) and the
// gated delta rule (Yang et al. 2024). Every head has a state S [n, p], which a row t changes and
// then reads:
//
//   Mamba-2      S_t = a_t·S_{t−1} + k_t·β_t·v_tᵀ                            a_t = exp(g_t)
//   delta rule   S_t = a_t·S_{t−1} + k_t·β_t·(v_t − a_t·S_{t−1}ᵀ·k_t)ᵀ
//   out_t = S_tᵀ·q_t
//
// For Mamba-2 q = C, k = B, v = x, β = Δt and g = Δt·A. Rows are computed 64 at a time by small
// GEMMs; these chunks begin at multiples of 64 of the position in the sequence. Arithmetic and
// states are in compute_type() of v. A piece of one row costs one step of the recurrence.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "megatron/ops/row_pieces.h"

namespace megatron {

/// Heads h share the q and k of group h / (heads / groups). q, k and v have one dtype. g and β have
/// compute_type() of it.
struct LinearAttentionInputs {
  at::Tensor q, k;  ///< [s, b, groups, n]
  at::Tensor v;     ///< [s, b, heads, p]
  at::Tensor g;     ///< [s, b, heads]: the logarithm of the decay, ≤ 0 and finite
  at::Tensor beta;  ///< [s, b, heads], or undefined for ones
  static auto members(auto& i) { return std::tie(i.q, i.k, i.v, i.g, i.beta); }
};

struct LinearAttentionRule {
  bool delta_rule = false;
  /// Divides each row of q and of k by √(Σ squares + 1e-6) first, as Qwen3-Next does.
  bool normalizes_qk = false;
  double q_scale = 1;  ///< multiplies q (after the norm)
  static auto members(auto& r) { return std::tie(r.delta_rule, r.normalizes_qk, r.q_scale); }
};

struct LinearAttentionOptions {
  LinearAttentionRule rule = {};
  RowPieces pieces = {};
  /// [pieces, heads, n, p] in compute_type() of v: the state before each piece; undefined for
  /// zeros. No gradient flows into it.
  at::Tensor initial_states = {};
  bool wants_final_states = false;
};

struct LinearAttentionResult {
  at::Tensor out;           ///< like v
  at::Tensor final_states;  ///< like initial_states: the state behind each piece, if wanted
  static auto members(auto& r) { return std::tie(r.out, r.final_states); }
};

/// Runs linear attention. Differentiable in all inputs; final states carry no gradient. Backward
/// keeps the inputs only, and computes the states at the chunks' borders again.
LinearAttentionResult linear_attention(const LinearAttentionInputs& inputs,
                                       const LinearAttentionOptions& options);

/// Sizes of inputs and of their longest piece.
struct LinearAttentionSizes {
  std::int64_t s = 0, b = 1, groups = 1, heads = 1, n = 0, p = 0;
  std::int64_t longest = 0;  ///< rows of the longest piece
};

/// What linear attention allocates on the CPU besides its results, in bytes.
struct LinearAttentionBuffers {
  std::int64_t backward = 0;    ///< during backward: gradients of q and k in compute_type()
  std::int64_t per_thread = 0;  ///< thread_workspace(), which a thread keeps
};
LinearAttentionBuffers linear_attention_buffers(const LinearAttentionSizes& sizes);

}  // namespace megatron
