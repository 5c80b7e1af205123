// Attention by our fused CPU kernels (kernels/cpu/attention.h). They store no scores and read their
// inputs in place.
#pragma once

#include "megatron/ops/core_attention.h"

namespace megatron {

/// Returns true for dtypes that the kernels support: float32, bfloat16 or float16.
bool fused_attention_supports(c10::ScalarType type);

/// Forward of core_attention() on the CPU. Probabilities are rounded to bfloat16 before a bfloat16
/// GEMM when the CPU multiplies bfloat16 in hardware. All other arithmetic is float32, and each
/// result is rounded once.
AttentionResult fused_attention(const AttentionInputs& inputs, const AttentionOptions& options);

/// Backward of fused_attention(). Returns the gradients of q, k and v.
AttentionInputs fused_attention_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                         const AttentionResult& result,
                                         const AttentionOptions& options);

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
