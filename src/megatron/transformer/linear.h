// The one entry of every matrix product with a weight: forward, input gradient and weight gradient (handed to the parameter's sink).
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/transformer/linear_exchange.h"
#include "megatron/transformer/parameter.h"

namespace megatron {

/// y = x·Wᵀ + b in the weight's dtype for x [..., in], W [out, in] and b [out] or null. The weight gradient is dyᵀ·x, accumulated in the main
/// gradient: in float32 straight from 16-bit operands where that is its dtype. Collective over the weight's axis as `exchange` says; then the first
/// dimension of x is the sequence, and only this rank's slice of x is kept for backward. A bias is added after a sum over the ranks. The input
/// gradient is on its way while the weight gradient is computed.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias, const LinearExchange& exchange = {});

}  // namespace megatron
