// The activation function of a feed-forward block, with the bias of the GEMM in front of it.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/bias_activation.h"

namespace megatron {

class Parameter;

/// An activation with the bias that it adds first, or null.
struct BiasActivation {
  ActivationForm form;
  Parameter* bias = nullptr;

  at::Tensor bias_value() const;
};

/// Returns the activation of x + bias; the bias's gradient is contributed. Differentiable.
at::Tensor activate(const at::Tensor& x, const BiasActivation& activation);

/// Backward of activate() for functions that record a graph of their own: returns the gradient of
/// x and contributes the bias's. `result`, if not null, receives what forward returned.
at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result = nullptr);

}  // namespace megatron
