#include "megatron/nn/activation.h"

#include "megatron/ops/differentiable.h"
#include "megatron/params/parameter.h"

namespace megatron {

at::Tensor BiasActivation::bias_value() const {
  return bias != nullptr ? bias->value() : at::Tensor();
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result) {
  BiasActivationGradients gradients = bias_activation_backward(
      dy, x, activation.bias_value(), activation.form, /*with_result=*/result != nullptr);
  if (result != nullptr) *result = gradients.y;
  if (activation.bias != nullptr) activation.bias->contribute(gradients.dbias);
  return gradients.dx;
}

at::Tensor activate(const at::Tensor& input, const BiasActivation& activation) {
  Recording recording(
      {.name = "ActivationBackward", .trains_parameters = any_trained({activation.bias})}, {input});
  const at::Tensor x = input.contiguous();
  return recording.finish(
      bias_activation(x, activation.bias_value(), activation.form), {x},
      [activation](BackwardPass& pass) -> Tensors {
        return {activation_backward(pass.gradients[0], pass.saved[0], activation)};
      });
}

}  // namespace megatron
