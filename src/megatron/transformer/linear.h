// The one entry of every matrix product with a weight: forward, input gradient and weight gradient (handed to the parameter's sink).
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/transformer/parameter.h"

namespace megatron {

/// y = x·Wᵀ + b in the weight's dtype for x [..., in], W [out, in] and b [out] or null. The weight gradient is dyᵀ·x, accumulated in the main
/// gradient: in float32 straight from 16-bit operands where that is its dtype.
at::Tensor linear(const at::Tensor& x, Parameter& weight, Parameter* bias);

}  // namespace megatron
