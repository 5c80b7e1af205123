// Attention through the CPU's own kernels (kernels/cpu/attention.h): no scores are stored, and
// inputs are read in place.
#pragma once

#include "megatron/ops/core_attention.h"

namespace megatron {

/// Whether the kernels take tensors of this dtype: float32, bfloat16 or float16.
bool fused_attention_supports(c10::ScalarType type);

/// Forward of core_attention() on the CPU. Probabilities enter the GEMM with v rounded to bfloat16
/// where the CPU multiplies that; the rest is float32, and each result is rounded once.
AttentionResult fused_attention(const AttentionInputs& inputs, const AttentionOptions& options);

/// Backward of fused_attention(): the gradients of q, k and v.
AttentionInputs fused_attention_backward(const at::Tensor& dout, const AttentionInputs& inputs,
                                         const AttentionResult& result,
                                         const AttentionOptions& options);

}  // namespace megatron
