// Activation functions of the MLP and their gated forms, with the bias of the product in front of them.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

class Parameter;

/// f(x + bias), or when `gated` f(gate)·up for x + bias [..., 2f] = [gate | up]; gelu is the erf form, gelu_tanh the tanh form, quick_gelu
/// x·σ(1.702·x). `bias` [columns of x] or null. 16-bit numbers are computed in float32 and rounded once. On the processor one own kernel for each
/// pass.
at::Tensor activate(const at::Tensor& x, Activation kind, bool gated = false, Parameter* bias = nullptr);

}  // namespace megatron
