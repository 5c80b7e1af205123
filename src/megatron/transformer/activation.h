// Activation functions of the MLP and their gated forms.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

/// f(x); gelu is the erf form, gelu_tanh the tanh form, quick_gelu x·σ(1.702·x).
at::Tensor activate(const at::Tensor& x, Activation kind);

/// f(gate)·up for x [..., 2f] = [gate | up]; over 16-bit numbers in float32, rounded once.
at::Tensor activate_gated(const at::Tensor& x, Activation kind);

}  // namespace megatron
