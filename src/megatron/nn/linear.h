// The single entry point of every GEMM with a weight: forward, input gradient and weight gradient,
// which it contributes to the parameter.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/nn/activation.h"
#include "megatron/nn/linear_exchange.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// Returns y = x·Wᵀ + b in the weight's dtype, for x [..., in], W [out, in] and b [out] or null. A
/// bias is added after a sum over the ranks.
///
/// Backward accumulates the weight gradient dyᵀ·x in the main gradient, directly in float32 from
/// 16-bit operands when that is its dtype. Communication of the input gradient overlaps the weight
/// gradient's GEMM.
///
/// Collective over the weight's axis as `exchange` says. The first dimension of x is then the
/// sequence, and only this rank's slice of x is saved for backward.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const LinearExchange& exchange = {});

/// Returns linear() of the activation of x, on the CPU, with the same bits as the two separate
/// operations. Only x is saved: the backward kernel of the activation recomputes its result for the
/// weight gradient. `exchange.input` must be `own`.
at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation,
                            Parameter& weight, Parameter* bias,
                            const LinearExchange& exchange = {});

}  // namespace megatron
