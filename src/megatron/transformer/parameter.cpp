#include "megatron/transformer/parameter.h"

#include <ATen/core/grad_mode.h>

#include "megatron/transformer/autograd_function.h"

namespace megatron {
namespace {

struct Tracked : torch::autograd::Function<Tracked> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& /*anchor*/, Parameter* parameter) {
    save_pointer(context, "parameter", parameter);
    return parameter->value().alias();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    load_pointer<Parameter>(context, "parameter")->contribute(gradients[0]);
    return {at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void Parameter::contribute(at::Tensor gradient) {
  contribute([gradient = std::move(gradient)](at::Tensor& grad, bool fresh) {
    if (fresh) {
      grad.copy_(gradient);
    } else {
      grad.add_(gradient);
    }
  });
}

at::Tensor tracked(Parameter& parameter) {
  if (!at::GradMode::is_enabled()) return parameter.value();
  return Tracked::apply(gradient_anchor(), &parameter);
}

}  // namespace megatron
