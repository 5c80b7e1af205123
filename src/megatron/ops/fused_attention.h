// Attention by our fused CPU kernels (kernels/cpu/attention.h). They store no scores and read their
// inputs in place.
#pragma once

#include "megatron/ops/core_attention.h"

namespace megatron {

/// Returns true for tensors that the kernels support: float32, bfloat16 or float16 on the CPU.
bool fused_attention_supports(const at::Tensor& q);

/// Computes core_attention() with the fused kernels. It is differentiable and saves q, k, v, out
/// and lse for backward. Probabilities, and gradients of scores, are rounded to bfloat16 before a
/// bfloat16 GEMM when the CPU multiplies bfloat16 in hardware. All other arithmetic is float32, and
/// each result is rounded once.
AttentionResult fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options);

}  // namespace megatron
