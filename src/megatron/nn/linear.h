// The one entry of every GEMM with a weight: forward, input gradient and weight gradient (handed to
// the parameter's sink).
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/nn/activation.h"
#include "megatron/nn/linear_exchange.h"
#include "megatron/params/parameter.h"

namespace megatron {

/// y = x·Wᵀ + b in the weight's dtype for x [..., in], W [out, in] and b [out] or null. The weight
/// gradient is dyᵀ·x, accumulated in the main gradient: in float32 straight from 16-bit operands
/// where that is its dtype. Collective over the weight's axis as `exchange` says; then the first
/// dimension of x is the sequence, and only this rank's slice of x is kept for backward. A bias is
/// added after a sum over the ranks. The input gradient is on its way while the weight gradient is
/// computed.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias,
                  const LinearExchange& exchange = {});

/// linear() of the activation of x, on the CPU. Only x is kept for backward: the pass that takes
/// the gradient through the activation makes its result once more for the weight gradient. The same
/// bits as one after the other. `exchange.input` must be `own`.
at::Tensor activated_linear(const at::Tensor& x, const BiasActivation& activation,
                            Parameter& weight, Parameter* bias,
                            const LinearExchange& exchange = {});

}  // namespace megatron
