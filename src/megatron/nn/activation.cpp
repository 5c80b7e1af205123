#include "megatron/nn/activation.h"

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

#include "kernels/cpu/activation_kernels.h"
#include "kernels/cpu/column_sums.h"
#include "megatron/base/error.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/op_scope.h"
#include "megatron/ops/parallel_kernel.h"
#include "megatron/ops/row_operations.h"
#include "megatron/params/parameter.h"

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

at::Tensor apply_formula(const at::Tensor& x, Activation kind, bool gated) {
  return gated ? gated_formula(x, kind) : formula(x, kind);
}

/// Differentiates a formula of several steps over 16-bit values: both passes compute in float32 and
/// round once, and only the 16-bit input is saved.
at::Tensor wide_formula(const at::Tensor& input, Activation kind, bool gated) {
  return differentiable({.name = "WideFormulaBackward"}, {input},
                        [&] {
                          return Recorded{
                              .outputs = {apply_formula(input.to(at::kFloat), kind, gated)
                                              .to(input.scalar_type())},
                              .saved = {input},
                              .backward = [kind, gated](BackwardPass& pass) -> Tensors {
                                const at::Tensor& x = pass.saved[0];
                                const at::AutoGradMode with_graph(true);
                                const at::Tensor wide = x.detach().to(at::kFloat).requires_grad_();
                                const at::Tensor y = apply_formula(wide, kind, gated);
                                return {gradient_of(y, wide, pass.gradients[0].to(at::kFloat))
                                            .to(x.scalar_type())};
                              }};
                        })
      .front();
}

/// Activations that ATen computes in one operator are float32 inside.
at::Tensor activate_by_formula(const at::Tensor& x, Activation kind, bool gated) {
  const bool several_steps =
      gated || kind == Activation::quick_gelu || kind == Activation::squared_relu;
  return several_steps && x.element_size() == 2 ? wide_formula(x, kind, gated)
                                                : apply_formula(x, kind, gated);
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

/// Returns the bias that the kernels add to `columns` columns, in the dtype they compute in.
at::Tensor wide_bias(const Parameter* bias, const at::Tensor& x) {
  const auto type = compute_type(x.scalar_type());
  return bias != nullptr ? bias->value().to(type).contiguous()
                         : at::zeros({x.size(-1)}, x.options().dtype(type));
}

at::Tensor empty_result(const at::Tensor& x, bool gated) {
  at::DimVector shape(x.sizes());
  if (gated) shape.back() /= 2;
  return at::empty(shape, x.options());
}

}  // namespace

at::Tensor activation_forward(const at::Tensor& x, const BiasActivation& activation) {
  at::Tensor y = empty_result(x, activation.gated);
  if (y.numel() == 0) return y;
  const at::Tensor bias = wide_bias(activation.bias, x);
  const OpScope scope("megatron::bias_activation", {x, bias, y});
  const std::int64_t columns = y.size(-1), rows = y.numel() / columns;
  parallel_kernel(kernels::activation_kernels().forward,
                  kernels::ActivationArguments{.x = x.const_data_ptr(),
                                               .bias = bias.const_data_ptr(),
                                               .y = y.mutable_data_ptr(),
                                               .type = kernel_type(x.scalar_type()),
                                               .rows = rows,
                                               .columns = columns,
                                               .kind = kernel_kind(activation.kind),
                                               .gated = activation.gated},
                  rows, columns);
  return y;
}

at::Tensor activation_backward(const at::Tensor& gradient, const at::Tensor& x,
                               const BiasActivation& activation, at::Tensor* result) {
  const at::Tensor dy = gradient.contiguous(), bias = wide_bias(activation.bias, x);
  at::Tensor dx = at::empty_like(x);
  const std::int64_t width = x.size(-1), columns = dy.size(-1), rows = x.numel() / width,
                     blocks = kernels::row_blocks(rows);
  at::Tensor sums =
      activation.bias != nullptr ? at::empty({blocks, width}, bias.options()) : at::Tensor();
  if (result != nullptr) *result = empty_result(x, activation.gated);
  {
    const at::Tensor y = result != nullptr ? *result : at::Tensor();
    const OpScope scope("megatron::bias_activation_backward", {dy, x, bias, dx, y});
    parallel_kernel(kernels::activation_kernels().backward,
                    kernels::ActivationBackwardArguments{
                        .dy = dy.const_data_ptr(),
                        .x = x.const_data_ptr(),
                        .bias = bias.const_data_ptr(),
                        .dx = dx.mutable_data_ptr(),
                        .bias_blocks = sums.defined() ? sums.mutable_data_ptr() : nullptr,
                        .y = y.defined() ? y.mutable_data_ptr() : nullptr,
                        .type = kernel_type(x.scalar_type()),
                        .rows = rows,
                        .columns = columns,
                        .kind = kernel_kind(activation.kind),
                        .gated = activation.gated},
                    blocks, kernels::kRowsPerBlock * width);
  }
  if (activation.bias != nullptr) activation.bias->contribute(reduce_row_blocks(sums));
  return dx;
}

namespace {

at::Tensor fused_activation(const at::Tensor& input, const BiasActivation& activation) {
  return differentiable({.name = "ActivationBackward", .trains_parameters = true}, {input},
                        [&] {
                          const at::Tensor x = input.contiguous();
                          return Recorded{.outputs = {activation_forward(x, activation)},
                                          .saved = {x},
                                          .backward = [activation](BackwardPass& pass) -> Tensors {
                                            return {activation_backward(pass.gradients[0],
                                                                        pass.saved[0], activation)};
                                          }};
                        })
      .front();
}

}  // namespace

at::Tensor activate(const at::Tensor& x, const BiasActivation& activation) {
  if (x.is_cpu()) return fused_activation(x, activation);
  return activate_by_formula(activation.bias != nullptr ? x + tracked(*activation.bias) : x,
                             activation.kind, activation.gated);
}

}  // namespace megatron
