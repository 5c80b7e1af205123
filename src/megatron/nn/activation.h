// The activation function of an MLP, fused with the bias of the preceding GEMM.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/ops/bias_activation.h"

namespace megatron {

class Parameter;

/// An activation and the bias that it adds first, or null.
struct BiasActivation {
  ActivationForm form;
  Parameter* bias = nullptr;

  at::Tensor bias_value() const;
};

/// Returns the activation of x + bias; differentiable. Backward contributes the gradient of the
/// bias.
at::Tensor activate(const at::Tensor& x, const BiasActivation& activation);

/// Backward of activate(), for callers that record their own graph. Returns the gradient of x and
/// contributes the gradient of the bias. If `result` is not null, it receives the forward result.
at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result = nullptr);

}  // namespace megatron
