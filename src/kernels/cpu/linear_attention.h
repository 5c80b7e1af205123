// Linear attention with a decaying state over raw memory, forward and backward:
// megatron/ops/linear_attention.h has the recurrence. It is computed in chunks of 64 rows by small
// GEMMs. With B_i = Σ_{j ≤ i} g_j inside a chunk, u_i the row that i adds to the state as k_i·u_iᵀ,
// and S the state before the chunk:
//
//   out_i = e^{B_i}·Sᵀq_i + Σ_{j ≤ i} e^{B_i − B_j}·(q_i·k_j)·u_j
//   u_i   = β_i·(v_i − [e^{B_i}·Sᵀk_i + Σ_{j < i} e^{B_i − B_j}·(k_i·k_j)·u_j])
//
// where only the delta rule has the brackets: a triangular system, solved by substitution. Sums of
// g and their differences are in double, so that strong decay costs no digits. Every exponent is
// ≤ 0. A row's result depends on the rows before it only, and not on the number of threads.
#pragma once

#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/row_piece.h"
#include "kernels/type.h"

namespace megatron::kernels {

/// Rows of a chunk. Chunks begin at its multiples in the positions of a sequence.
inline constexpr std::int64_t kLinearAttentionRows = 64;

/// "Wide" numbers are f64 if `type` is, else f32. q, k [s, b, groups, n] and v [s, b, heads, p]
/// have `type`.
struct LinearAttentionArguments {
  Type type;
  HeadsView q, k, v;
  const void *g, *beta;  ///< wide [s, b, heads], contiguous; beta may be null
  std::int64_t s, b, groups, heads, n, p;
  bool delta_rule, normalizes_qk;
  double q_scale;
  const RowPiece* pieces;
  std::int64_t num_pieces;
  const void* initial_states;  ///< wide [pieces, heads, n, p], or null for zeros
};

struct LinearAttentionForwardArguments : LinearAttentionArguments {
  void* out;           ///< like v, contiguous
  void* final_states;  ///< like initial_states, or null
};

/// Gradients of q and k are sums over the heads of a group. `splits` parts of the heads, each with
/// its own sums, work in parallel.
struct LinearAttentionBackwardArguments : LinearAttentionArguments {
  HeadsView dout;
  void *dq, *dk;     ///< wide [splits, s, b, groups, n]
  void* dv;          ///< like v, contiguous
  void *dg, *dbeta;  ///< like g; dbeta is null without beta
  std::int64_t splits;
};

struct LinearAttentionKernels {
  /// Return the bytes of the workspace of a thread, aligned to 64 bytes.
  std::int64_t (*forward_workspace)(const LinearAttentionArguments&);
  std::int64_t (*backward_workspace)(const LinearAttentionArguments&);
  /// Runs on parts [begin, end) of pieces × heads.
  void (*forward)(const LinearAttentionForwardArguments&, std::int64_t begin, std::int64_t end,
                  void* workspace);
  /// Runs on parts [begin, end) of pieces × groups × splits. Rows in no piece are not written.
  void (*backward)(const LinearAttentionBackwardArguments&, std::int64_t begin, std::int64_t end,
                   void* workspace);
};

/// Returns the kernels of the best instruction set of this CPU.
const LinearAttentionKernels& linear_attention_kernels();

}  // namespace megatron::kernels
