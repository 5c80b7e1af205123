// Activation functions of the MLP and their gated forms, fused with the bias of the preceding GEMM.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/config/transformer_config.h"

namespace megatron {

class Parameter;

/// Describes f(x + bias), or f(gate)·up when `gated`, for x + bias [..., 2f] = [gate | up]. `gelu`
/// is the erf form, `gelu_tanh` the tanh form, and `quick_gelu` is x·σ(1.702·x). `bias` has one
/// element per column of x, or is null.
struct BiasActivation {
  Activation kind;
  bool gated = false;
  Parameter* bias = nullptr;
};

/// Applies the activation to x. 16-bit values are computed in float32 and rounded once. On the CPU
/// one fused kernel runs in each pass.
at::Tensor activate(const at::Tensor& x, const BiasActivation& activation);

/// The forward pass of activate() on the CPU, for callers that record their own backward. x is
/// contiguous.
at::Tensor activation_forward(const at::Tensor& x, const BiasActivation& activation);
/// The backward pass of activate() on the CPU. Returns the gradient of x and contributes the
/// gradient of the bias. If `result` is not null, it receives the forward result, which the same
/// pass recomputes, so that it need not be saved.
at::Tensor activation_backward(const at::Tensor& gradient, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result = nullptr);

}  // namespace megatron
