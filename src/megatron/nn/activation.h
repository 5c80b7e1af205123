// Activation functions of the MLP and their gated forms, with the bias of the product in front of
// them.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

class Parameter;

/// f(x + bias), or when `gated` f(gate)·up for x + bias [..., 2f] = [gate | up]; gelu is the erf
/// form, gelu_tanh the tanh form, quick_gelu x·σ(1.702·x). `bias` [columns of x] or null.
struct BiasActivation {
  Activation kind;
  bool gated = false;
  Parameter* bias = nullptr;
};

/// 16-bit numbers are computed in float32 and rounded once. On the CPU one own kernel for each
/// pass.
at::Tensor activate(const at::Tensor& x, const BiasActivation& activation);

/// The two passes of activate() on the CPU, for functions that make their graph themselves. x is
/// contiguous.
at::Tensor activation_forward(const at::Tensor& x, const BiasActivation& activation);
/// The gradient of x from that of the result; the bias's is contributed. `result`, if not null,
/// receives what forward gave, which then need not be kept: the same pass makes it.
at::Tensor activation_backward(const at::Tensor& gradient, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result = nullptr);

}  // namespace megatron
