// Attention by our fused CPU kernels (kernels/cpu/attention.h). They store no scores and read their
// inputs in place.
#pragma once

#include <cstdint>
#include <span>

#include "megatron/ops/cache_memory.h"
#include "megatron/ops/core_attention.h"

namespace megatron {

/// Returns true for dtypes that the kernels support: float32, bfloat16 or float16.
bool fused_attention_supports(c10::ScalarType type);

/// Forward of core_attention() on the CPU. Probabilities are rounded to bfloat16 before a bfloat16
/// GEMM when the CPU multiplies bfloat16 in hardware. All other arithmetic is float32, and each
/// result is rounded once.
AttentionResult fused_attention(const AttentionInputs& inputs, const AttentionOptions& options);

/// Backward of fused_attention().
AttentionGradients fused_attention_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                            const AttentionResult& result,
                                            const AttentionOptions& options);

/// New tokens of a sequence whose keys and values are in the blocks of a KV cache, on the CPU as
/// the kernels pack them (kernels::PackedBlocks).
struct PackedSequence {
  std::int64_t first_row = 0, count = 0;  ///< of the tokens in q, k and v
  std::int64_t start = 0;                 ///< position of the first one
  const LayerBlocks* blocks = nullptr;    ///< of all sequences
  const std::int32_t* numbers = nullptr;  ///< of this sequence's blocks
  KvCacheType type = KvCacheType::same;
  bool is_appended = false;  ///< their keys and values are in the blocks already
  /// If > 0, the tokens attend to the first so many keys in the blocks: those of another sequence.
  std::int64_t num_foreign_keys = 0;

  std::int64_t num_keys() const { return num_foreign_keys > 0 ? num_foreign_keys : start + count; }
};

/// Appends k and v [rows, b, g, d or dv] of the sequences to their blocks and returns attention
/// [rows, b, n·dv] of q to all their keys, with the bits of fused_attention(). Rows that belong to
/// no sequence are not written. Without q it only appends. Options have no dropout, documents or
/// max_scores. A distance_bias is that of total_q = total_k positions, which no sequence exceeds.
at::Tensor packed_attention(const AttentionInputs& inputs, const AttentionOptions& options,
                            std::span<const PackedSequence> sequences);

/// Sizes of q [sq, b, n, d] and of k and v [sk, b, g, d].
struct AttentionSizes {
  std::int64_t sq = 0, sk = 0, b = 1, n = 1, g = 1, d = 0;
};

/// What fused_attention() and fused_attention_backward() allocate besides their results, in bytes.
struct AttentionBuffers {
  std::int64_t forward = 0, backward = 0;  ///< during a call
  std::int64_t per_thread = 0;             ///< thread_workspace(), which a thread keeps
};
AttentionBuffers fused_attention_buffers(const AttentionSizes& sizes, c10::ScalarType type);

}  // namespace megatron
