#include "megatron/transformer/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "kernels/cpu/activation_kernels.h"
#include "kernels/cpu/column_sums.h"
#include "megatron/base/error.h"
#include "megatron/transformer/autograd_function.h"
#include "megatron/transformer/kernel_type.h"
#include "megatron/transformer/on_threads.h"
#include "megatron/transformer/op_scope.h"
#include "megatron/transformer/parameter.h"
#include "megatron/transformer/row_operations.h"

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

/// What ATen computes in one step is float32 inside.
at::Tensor activate_by_formula(const at::Tensor& x, Activation kind, bool gated) {
  const bool several_steps = gated || kind == Activation::quick_gelu || kind == Activation::squared_relu;
  return several_steps && x.element_size() == 2 ? WideFormula::apply(x, kind, gated) : apply_formula(x, kind, gated);
}

kernels::ActivationKind kernel_kind(Activation kind) {
  switch (kind) {
    case Activation::gelu:
      return kernels::ActivationKind::gelu;
    case Activation::gelu_tanh:
      return kernels::ActivationKind::gelu_tanh;
    case Activation::relu:
      return kernels::ActivationKind::relu;
    case Activation::squared_relu:
      return kernels::ActivationKind::squared_relu;
    case Activation::silu:
      return kernels::ActivationKind::silu;
    case Activation::quick_gelu:
      return kernels::ActivationKind::quick_gelu;
  }
  throw InternalError("an activation without a kernel");
}

/// What the kernels add to `columns` columns, in the dtype they compute in.
at::Tensor wide_bias(const Parameter* bias, const at::Tensor& x) {
  const auto type = compute_type(x.scalar_type());
  return bias != nullptr ? bias->value().to(type).contiguous() : at::zeros({x.size(-1)}, x.options().dtype(type));
}

struct BiasActivation : torch::autograd::Function<BiasActivation> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& /*anchor*/, Activation kind, bool gated,
                            Parameter* bias) {
    const at::Tensor x = input.contiguous(), b = wide_bias(bias, x);
    context->save_for_backward({x});
    context->saved_data["kind"] = static_cast<std::int64_t>(kind);
    context->saved_data["gated"] = gated;
    save_pointer(context, "bias", bias);
    at::DimVector shape(x.sizes());
    if (gated) shape.back() /= 2;
    at::Tensor y = at::empty(shape, x.options());
    if (y.numel() == 0) return y;
    const OpScope scope("megatron::bias_activation", {x, b, y});
    const std::int64_t columns = shape.back(), rows = y.numel() / columns;
    on_threads(kernels::activation_kernels().forward,
               kernels::ActivationArguments{.x = x.const_data_ptr(),
                                            .bias = b.const_data_ptr(),
                                            .y = y.mutable_data_ptr(),
                                            .type = kernel_type(x.scalar_type()),
                                            .rows = rows,
                                            .columns = columns,
                                            .kind = kernel_kind(kind),
                                            .gated = gated},
               rows, columns);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const at::Tensor x = context->get_saved_variables()[0], dy = gradients[0].contiguous();
    auto* bias = load_pointer<Parameter>(context, "bias");
    const at::Tensor b = wide_bias(bias, x);
    at::Tensor dx = at::empty_like(x);
    const std::int64_t width = x.size(-1), columns = dy.size(-1), rows = x.numel() / width, blocks = kernels::row_blocks(rows);
    at::Tensor sums = bias != nullptr ? at::empty({blocks, width}, b.options()) : at::Tensor();
    {
      const OpScope scope("megatron::bias_activation_backward", {dy, x, b, dx});
      on_threads(kernels::activation_kernels().backward,
                 kernels::ActivationBackwardArguments{.dy = dy.const_data_ptr(),
                                                      .x = x.const_data_ptr(),
                                                      .bias = b.const_data_ptr(),
                                                      .dx = dx.mutable_data_ptr(),
                                                      .bias_blocks = sums.defined() ? sums.mutable_data_ptr() : nullptr,
                                                      .type = kernel_type(x.scalar_type()),
                                                      .rows = rows,
                                                      .columns = columns,
                                                      .kind = kernel_kind(static_cast<Activation>(context->saved_data["kind"].toInt())),
                                                      .gated = context->saved_data["gated"].toBool()},
                 blocks, kernels::kRowsOfABlock * width);
    }
    if (bias != nullptr) bias->contribute(added_row_blocks(sums));
    return {dx, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor activate(const at::Tensor& x, Activation kind, bool gated, Parameter* bias) {
  if (x.is_cpu()) return BiasActivation::apply(x, gradient_anchor(), kind, gated, bias);
  return activate_by_formula(bias != nullptr ? x + tracked(*bias) : x, kind, gated);
}

}  // namespace megatron
