// Attention over raw memory, forward and backward, without stored scores: softmax(scale·q·kᵀ + what
// a score may carry)·v in blocks of queries and keys (Dao et al. 2022). s positions (q of queries,
// k of keys), b samples, n query heads, g groups of keys and values, d and dv channels.
//
// Order of summation: blocks of kAttentionKeys keys begin at multiples of it in absolute positions
// and are taken in ascending order, so the result of a query does not depend on the other queries
// of a call, nor on the number of threads. docs/kernels.md tells the rest.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/row_operations.h"

namespace megatron::kernels {

/// Keys of a block.
inline constexpr std::int64_t kAttentionKeys = 128;

/// [s, b, heads, channels] as it lies: strides in elements, unit stride last.
struct HeadsView {
  const void* data;
  std::int64_t position_stride, sample_stride, head_stride;
};

struct AttentionArguments {
  Type type;                        ///< of q, k, v, out and their gradients: f32, bf16 or f16
  const MicroKernel* micro_kernel;  ///< gemm_micro_kernel(type)
  std::int64_t sq, sk, b, n, g, d, dv;
  HeadsView q, k, v;
  bool causal;
  std::array<std::int64_t, 2> window;  ///< keys seen left and right of a query; −1 = unlimited
  double scale, softcap;               ///< softcap > 0: cap·tanh(score / cap)
  const float* alibi_slopes;           ///< [n] or null
  const std::int32_t* document_ids;    ///< [b, ≥ max(sq, sk)] or null
  std::int64_t document_stride;        ///< between samples
  std::int64_t q_start, k_start;       ///< positions of the first query and key
  bool has_dropout;  ///< with `rule`; element = flat index in [all heads, q_start + sq, k_start +
                     ///< sk]
  DropoutRule rule;
  const std::int64_t* ordinals;  ///< [b]
  std::int64_t first_head;

  MEGATRON_KERNEL_INLINE std::int64_t heads_per_group() const { return n / g; }
};

/// out [sq, b, n, dv] contiguous, zero for queries that see nothing; lse [b, n, sq] = log Σ exp of
/// the scores, −∞ there.
struct AttentionForwardArguments : AttentionArguments {
  void* out;
  float* lse;
};

/// Of contiguous out and lse as forward left them and dout (unit stride last); dq [sq, b, n, d], dk
/// [sk, b, g, d], dv [sk, b, g, dv] are overwritten.
struct AttentionBackwardArguments : AttentionArguments {
  const void* out;
  const float* lse;
  HeadsView dout;
  void *dq, *dk, *dvalue;
  std::array<std::int64_t, 3> dq_strides, dk_strides,
      dvalue_strides;  ///< of position, sample and head
};

/// How much memory and how many equal parts a pass takes. The caller allocates `shared_bytes` for
/// all and `workspace_bytes` for each thread (64-byte aligned), and shares the parts of each stage
/// among threads, one stage after another.
struct AttentionPlan {
  std::int64_t shared_bytes, workspace_bytes;
  std::array<std::int64_t, 2> parts;  ///< of the first and second stage; a stage may have none
};

/// Stages on parts [begin, end). Forward: keys and values are packed, then blocks of queries are
/// computed. Backward: gradients of heads and stretches of keys, then the sums of what several of
/// them have computed.
struct AttentionKernels {
  AttentionPlan (*forward_plan)(const AttentionForwardArguments&);
  void (*forward)(const AttentionForwardArguments&, int stage, std::int64_t begin, std::int64_t end,
                  void* shared, void* workspace);
  AttentionPlan (*backward_plan)(const AttentionBackwardArguments&);
  void (*backward)(const AttentionBackwardArguments&, int stage, std::int64_t begin,
                   std::int64_t end, void* shared, void* workspace);
};

/// The table for this CPU.
const AttentionKernels& attention_kernels();

}  // namespace megatron::kernels
