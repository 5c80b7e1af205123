// Attention through the CPU's own kernels (kernels/cpu/attention.h): no scores are stored, inputs
// are read where they lie.
#pragma once

#include "megatron/ops/core_attention.h"

namespace megatron {

/// True for what the kernels take: float32, bfloat16 or float16 on the CPU.
bool fused_attention_supports(const at::Tensor& q);

/// core_attention for such tensors, differentiable: keeps q, k, v, out and lse for backward.
/// Probabilities (and gradients of scores) enter products of bfloat16 rounded to bfloat16 where the
/// CPU multiplies that; everything else is float32, and each result is rounded once.
AttentionResult fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options);

}  // namespace megatron
