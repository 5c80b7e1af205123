#include "megatron/transformer/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>
#include <torch/csrc/autograd/autograd.h>

#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"

namespace megatron {
namespace {

at::Tensor formula(const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::relu:
      return at::relu(x);
    case Activation::squared_relu:
      return at::square(at::relu(x));
    case Activation::silu:
      return at::silu(x);
    case Activation::quick_gelu:
      return x * at::sigmoid(x * 1.702);
  }
  throw InternalError("an activation without a formula");
}

at::Tensor gated_formula(const at::Tensor& x, Activation kind) {
  const std::int64_t width = x.size(-1) / 2;
  return formula(x.narrow(-1, 0, width), kind) * x.narrow(-1, width, width);
}

at::Tensor apply_formula(const at::Tensor& x, Activation kind, bool gated) { return gated ? gated_formula(x, kind) : formula(x, kind); }

/// A formula of several steps over 16-bit numbers: made in float32 in both passes, rounded once, remembering only the 16-bit input.
struct WideFormula : torch::autograd::Function<WideFormula> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Activation kind, bool gated) {
    context->save_for_backward({x});
    context->saved_data["kind"] = static_cast<std::int64_t>(kind);
    context->saved_data["gated"] = gated;
    return apply_formula(x.to(at::kFloat), kind, gated).to(x.scalar_type());
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0];
    const at::AutoGradMode with_graph(true);
    const at::Tensor wide = x.detach().to(at::kFloat).requires_grad_();
    const auto kind = static_cast<Activation>(context->saved_data["kind"].toInt());
    const at::Tensor y = apply_formula(wide, kind, context->saved_data["gated"].toBool());
    const variable_list dx = torch::autograd::grad({y}, {wide}, {gradients[0].to(at::kFloat)});
    return {dx[0].to(x.scalar_type()), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation kind) {
  // ATen's other functions are one step, float32 inside.
  const bool several_steps = kind == Activation::quick_gelu || kind == Activation::squared_relu;
  return several_steps && x.element_size() == 2 ? WideFormula::apply(x, kind, false) : formula(x, kind);
}

at::Tensor activate_gated(const at::Tensor& x, Activation kind) {
  return x.element_size() == 2 ? WideFormula::apply(x, kind, true) : gated_formula(x, kind);
}

}  // namespace megatron
