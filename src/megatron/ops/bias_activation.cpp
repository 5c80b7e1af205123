#include "megatron/ops/bias_activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/square.h>
#include <ATen/ops/zeros.h>

#include <limits>

#include "kernels/cpu/activation_kernels.h"
#include "kernels/cpu/column_sums.h"
#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

using Optional = std::optional<at::Tensor>;
using Gradients = BiasActivationGradients;

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

at::Tensor formula(const at::Tensor& x, const ActivationForm& form) {
  if (!form.gated) return formula(x, form.kind);
  const std::int64_t width = x.size(-1) / 2;
  at::Tensor gate = x.narrow(-1, 0, width), up = x.narrow(-1, width, width);
  if (form.clamp) {
    gate = at::clamp_max(gate, *form.clamp);
    up = at::clamp(up, -*form.clamp, *form.clamp);
  }
  return formula(gate, form.kind) * (form.linear_offset == 0 ? up : up + form.linear_offset);
}

/// Returns x + bias in compute_type().
at::Tensor wide_sum(const at::Tensor& x, const Optional& bias) {
  const at::Tensor wide = x.to(compute_type(x.scalar_type()));
  return bias ? wide + bias->to(wide.scalar_type()) : wide;
}

/// Returns the weights of the rows of y, to be multiplied by it.
at::Tensor row_weights(const at::Tensor& weights, const at::Tensor& y) {
  at::DimVector shape(y.sizes());
  shape.back() = 1;
  return weights.view(shape);
}

at::Tensor forward_by_formula(const at::Tensor& x, const Optional& bias, const ActivationForm& form,
                              const Optional& weights) {
  at::Tensor y = formula(wide_sum(x, bias), form);
  if (weights) y = y * row_weights(*weights, y);
  return y.to(x.scalar_type());
}

Gradients backward_by_formula(const at::Tensor& dy, const at::Tensor& x, const Optional& bias,
                              const ActivationForm& form, bool with_result,
                              const Optional& weights) {
  const at::AutoGradMode with_graph(true);
  const at::Tensor wide = wide_sum(x.detach(), bias).detach().requires_grad_();
  at::Tensor y = formula(wide, form), d = dy.to(wide.scalar_type());
  const at::Tensor dweights =
      weights ? (d * y.detach()).sum(-1).view(weights->sizes()) : at::Tensor();
  if (weights) d = d * row_weights(*weights, d);
  const at::Tensor dx = gradient_of(y, wide, d);
  y = y.detach();
  if (weights) y = y * row_weights(*weights, y);
  return {dx.to(x.scalar_type()), bias ? dx.reshape({-1, dx.size(-1)}).sum(0) : at::Tensor(),
          with_result ? y.to(x.scalar_type()) : at::Tensor(), dweights};
}

/// Both enumerations have the same functions in the same order (Fallback.Activations).
kernels::ActivationForm kernel_form(const ActivationForm& form) {
  return {.kind = static_cast<kernels::ActivationKind>(form.kind),
          .gated = form.gated,
          .clamp = form.clamp.value_or(std::numeric_limits<double>::infinity()),
          .linear_offset = form.linear_offset};
}

/// Returns the bias that the kernels add to each column, in the dtype they compute in.
at::Tensor wide_bias(const at::Tensor& x, const Optional& bias) {
  const auto type = compute_type(x.scalar_type());
  return bias ? bias->to(type).contiguous() : at::zeros({x.size(-1)}, x.options().dtype(type));
}

at::Tensor contiguous_or_none(const Optional& tensor) {
  return tensor ? tensor->contiguous() : at::Tensor();
}

at::Tensor empty_result(const at::Tensor& x, bool gated) {
  at::DimVector shape(x.sizes());
  if (gated) shape.back() /= 2;
  return at::empty(shape, x.options());
}

at::Tensor forward_on_cpu(const at::Tensor& input, const Optional& given,
                          const ActivationForm& form, const Optional& given_weights) {
  const at::Tensor x = input.contiguous();
  at::Tensor y = empty_result(x, form.gated);
  if (y.numel() == 0) return y;
  const at::Tensor bias = wide_bias(x, given), weights = contiguous_or_none(given_weights);
  const std::int64_t columns = y.size(-1), rows = y.numel() / columns;
  parallel_kernel(kernels::activation_kernels().forward,
                  kernels::ActivationArguments{.x = x.const_data_ptr(),
                                               .bias = bias.const_data_ptr(),
                                               .weights = data_or_null(weights),
                                               .y = y.mutable_data_ptr(),
                                               .type = kernel_type(x.scalar_type()),
                                               .rows = rows,
                                               .columns = columns,
                                               .form = kernel_form(form)},
                  rows, columns);
  return y;
}

Gradients backward_on_cpu(const at::Tensor& gradient, const at::Tensor& input,
                          const Optional& given, const ActivationForm& form, bool with_result,
                          const Optional& given_weights) {
  const at::Tensor dy = gradient.contiguous(), x = input.contiguous(), bias = wide_bias(x, given),
                   weights = contiguous_or_none(given_weights);
  at::Tensor dx = at::empty_like(x);
  const std::int64_t width = x.size(-1), columns = dy.size(-1), rows = x.numel() / width,
                     blocks = kernels::row_blocks(rows);
  at::Tensor sums = given ? at::empty({blocks, width}, bias.options()) : at::Tensor();
  at::Tensor y = with_result ? empty_result(x, form.gated) : at::Tensor(),
             dweights = weights.defined() ? at::empty_like(weights) : at::Tensor();
  parallel_kernel(kernels::activation_kernels().backward,
                  kernels::ActivationBackwardArguments{.dy = dy.const_data_ptr(),
                                                       .x = x.const_data_ptr(),
                                                       .bias = bias.const_data_ptr(),
                                                       .weights = data_or_null(weights),
                                                       .dx = dx.mutable_data_ptr(),
                                                       .bias_blocks = mutable_or_null(sums),
                                                       .y = mutable_or_null(y),
                                                       .dweights = mutable_or_null(dweights),
                                                       .type = kernel_type(x.scalar_type()),
                                                       .rows = rows,
                                                       .columns = columns,
                                                       .form = kernel_form(form)},
                  blocks, kernels::kRowsPerBlock * width);
  return {dx, sums.defined() ? reduce_row_blocks(sums) : at::Tensor(), y, dweights};
}

at::Tensor forward_on_meta(const at::Tensor& x, const Optional& /*bias*/,
                           const ActivationForm& form, const Optional& /*weights*/) {
  return empty_result(x, form.gated);
}

Gradients backward_on_meta(const at::Tensor& /*dy*/, const at::Tensor& x, const Optional& bias,
                           const ActivationForm& form, bool with_result, const Optional& weights) {
  const auto sums = x.options().dtype(compute_type(x.scalar_type()));
  return {at::empty_like(x), bias ? at::empty({x.size(-1)}, sums) : at::Tensor(),
          with_result ? empty_result(x, form.gated) : at::Tensor(),
          weights ? at::empty_like(*weights) : at::Tensor()};
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<forward_on_cpu>(library, "bias_activation");
  register_kernel<forward_by_formula>(library, "bias_activation", kAnyDevice);
  register_kernel<forward_on_meta>(library, "bias_activation", kMetaDevice);
  define_operator<backward_on_cpu>(library, "bias_activation_backward");
  register_kernel<backward_by_formula>(library, "bias_activation_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "bias_activation_backward", kMetaDevice);
}

void check(const ActivationForm& form) {
  MEGATRON_CHECK(form.gated || (!form.clamp && form.linear_offset == 0), "clamp ",
                 form.clamp.value_or(0), " and offset ", form.linear_offset, " without a gate");
}

}  // namespace

ActivationForm activation_form(const TransformerConfig& config) {
  return {.kind = config.activation,
          .gated = config.gated_linear_unit,
          .clamp = config.activation_func_clamp_value,
          .linear_offset = config.glu_linear_offset};
}

at::Tensor bias_activation(const at::Tensor& x, const at::Tensor& bias, const ActivationForm& form,
                           const at::Tensor& weights) {
  static const Operator<forward_on_cpu> op("megatron::bias_activation");
  check(form);
  return op(x, optional_tensor(bias), form, optional_tensor(weights));
}

BiasActivationGradients bias_activation_backward(const at::Tensor& dy, const at::Tensor& x,
                                                 const at::Tensor& bias, const ActivationForm& form,
                                                 bool with_result, const at::Tensor& weights) {
  static const Operator<backward_on_cpu> op("megatron::bias_activation_backward");
  check(form);
  return op(dy, x, optional_tensor(bias), form, with_result, optional_tensor(weights));
}

}  // namespace megatron
