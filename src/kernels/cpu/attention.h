// Attention over raw memory, forward and backward, without stored scores (Dao et al. 2022). It
// computes softmax(scale·q·kᵀ + masks and biases)·v in blocks of queries and keys. Shapes: s
// positions (sq of queries, sk of keys), b samples, n query heads, g groups of keys and values, d
// and dv channels.
//
// Order of summation: blocks of kAttentionKeys keys begin at its multiples in absolute positions
// and are added in ascending order. So the result of a query does not depend on the other queries
// of a call, nor on the number of threads. docs/kernels.md gives the details.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/cpu/micro_kernel.h"
#include "kernels/row_operations.h"

namespace megatron::kernels {

/// Number of keys of a block.
inline constexpr std::int64_t kAttentionKeys = 128;

/// A tensor [s, b, heads, channels] by its strides, in elements. Channels are contiguous.
struct HeadsView {
  const void* data;
  std::int64_t position_stride, sample_stride, head_stride;
};

struct AttentionArguments {
  Type type;                        ///< q, k, v, out and their gradients are f32, bf16 or f16
  const MicroKernel* micro_kernel;  ///< gemm_micro_kernel(type)
  std::int64_t sq, sk, b, n, g, d, dv;
  HeadsView q, k, v;
  bool causal;
  std::array<std::int64_t, 2>
      window;                 ///< keys seen to the left and right of a query; −1 is unlimited
  std::int64_t chunk;         ///< if > 0, a query sees the keys of its own chunk of positions only
  double scale, softcap;      ///< softcap > 0 gives cap·tanh(score / cap)
  const float* alibi_slopes;  ///< [n] or null
  /// [n, distance_stride] or null: column c is added to the scores, behind the softcap, of keys
  /// that lie c − (total_q − 1) positions behind the query. Rows have total_q + total_k − 1
  /// columns, and kAttentionKeys finite numbers behind them.
  const float* distance_bias;
  std::int64_t distance_stride;
  /// [n] or null: the score of a further key of each head, whose value is zero. Forward adds it to
  /// lse and to the sum of the probabilities, after all keys.
  const float* sinks;
  const std::int32_t* document_ids;  ///< [b, positions of the sequence] or null
  std::int64_t document_stride;      ///< elements between samples
  /// [b, positions of the keys] or null: the documents of keys that are in another sequence than
  /// the queries. Only with document_ids.
  const std::int32_t* key_document_ids;
  std::int64_t key_document_stride;
  std::int64_t q_start, k_start;  ///< positions of the first query and key
  std::int64_t total_q, total_k;  ///< positions of the whole sequences
  /// Uses `rule`. An element's index is its flat index in [all heads, total_q, total_k].
  bool has_dropout;
  DropoutRule rule;
  const std::int64_t* ordinals;  ///< [b]
  std::int64_t first_head;

  MEGATRON_KERNEL_INLINE std::int64_t heads_per_group() const { return n / g; }
};

/// The blocks of a KV cache that hold the keys and values of a sequence, kAttentionKeys positions
/// each, from position 0 on. A block has packed_block_bytes() for each sample and group: panels of
/// its keys, then panels of its values, as the micro-kernel reads them. In 8 bits they are unpacked
/// first (attention_codes.h).
struct PackedBlocks {
  char* const* memory = nullptr;          ///< of each block, by number; null: there is no cache
  const std::int32_t* numbers = nullptr;  ///< of the sequence's blocks, in the order of positions
  std::int64_t num_new = 0;               ///< keys that are not in the blocks yet
  KvCacheType type = KvCacheType::same;
};

/// Returns the bytes of a block of one sample and group.
MEGATRON_KERNEL_INLINE std::int64_t packed_block_bytes(const MicroKernel& micro_kernel,
                                                       std::int64_t d, std::int64_t dv,
                                                       KvCacheType type = KvCacheType::same) {
  const std::int64_t bytes =
      kAttentionKeys / kPanelColumns * micro_kernel.packed_bytes(d) +
      (dv + kPanelColumns - 1) / kPanelColumns * micro_kernel.packed_bytes(kAttentionKeys);
  if (type == KvCacheType::same) return bytes;
  return bytes / (micro_kernel.type == Type::bf16 ? 2 : 4) + 2 * 4 * kAttentionKeys;
}

/// out [sq, b, n, dv] is contiguous, and lse [b, n, sq] = log Σ exp of the scores. For queries that
/// see no key, out is zero and lse is −∞ or the sink.
struct AttentionForwardArguments : AttentionArguments {
  void* out;
  float* lse;
  float* top = nullptr;  ///< [b, n, sq] or null: receives the largest score without the sink
  /// With a cache k_start is 0 and k and v hold the last `num_new` of the sk keys and values only.
  /// Forward packs them behind those in the blocks, with the bits of blocks that are packed at
  /// once. With sq = 0 it does nothing else. The padding of channels, and values that a GEMM reads
  /// behind the last one, become zeros.
  PackedBlocks packed = {};
};

/// Takes out and lse as forward left them, and dout, whose channels are contiguous. Overwrites dq
/// [sq, b, n, d], dk [sk, b, g, d] and dv [sk, b, g, dv].
struct AttentionBackwardArguments : AttentionArguments {
  const void* out;
  const float* lse;
  HeadsView dout;
  void *dq, *dk, *dvalue;
  /// Strides of position, sample and head.
  std::array<std::int64_t, 3> dq_strides, dk_strides, dvalue_strides;
  float* ddistance_bias = nullptr;  ///< like distance_bias; null without one
};

/// The memory and the number of equal parts of a pass. The caller allocates `shared_bytes` once and
/// `workspace_bytes` for each thread, both aligned to 64 bytes. It runs one stage after another,
/// and shares the parts of a stage among its threads.
struct AttentionPlan {
  std::int64_t shared_bytes, workspace_bytes;
  std::array<std::int64_t, 2>
      parts;  ///< parts of the first and second stage; a stage may have none
};

/// The functions run one stage on the parts [begin, end). Forward first packs keys and values, then
/// computes blocks of queries; what only one block of queries reads, it packs there. Backward first
/// computes the gradients of heads and ranges of keys, then adds up the sums to which several parts
/// contributed.
struct AttentionKernels {
  AttentionPlan (*forward_plan)(const AttentionForwardArguments&);
  void (*forward)(const AttentionForwardArguments&, int stage, std::int64_t begin, std::int64_t end,
                  void* shared, void* workspace);
  AttentionPlan (*backward_plan)(const AttentionBackwardArguments&);
  void (*backward)(const AttentionBackwardArguments&, int stage, std::int64_t begin,
                   std::int64_t end, void* shared, void* workspace);
};

/// Returns the kernels of the best instruction set of this CPU.
const AttentionKernels& attention_kernels();

}  // namespace megatron::kernels
