#include "support/gradient_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/sin.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "megatron/params/param_store.h"

namespace megatron {
namespace {

/// Returns the derivative of `loss` by element `index` of `tensor`.
double central_difference(const std::function<at::Tensor()>& loss, at::Tensor tensor,
                          std::int64_t index, double step) {
  const at::NoGradGuard no_grad;
  double* element = tensor.mutable_data_ptr<double>() + index;
  const double original = *element;
  *element = original + step;
  const double above = loss().item<double>();
  *element = original - step;
  const double below = loss().item<double>();
  *element = original;
  return (above - below) / (2 * step);
}

}  // namespace

at::Tensor weighted_sum(const at::Tensor& y) {
  const at::Tensor weights =
      at::sin(at::arange(y.numel(), y.options()) * 1.7 + 0.3).view(y.sizes());
  return (y * weights).sum();
}

at::Tensor random_input(at::IntArrayRef shape, double scale, double phase) {
  std::int64_t count = 1;
  for (const auto extent : shape) count *= extent;
  const at::Tensor index = at::arange(count, at::kDouble);
  return (at::sin(index * index * 0.37 + index * 1.13 + 0.5 + phase) * scale)
      .view(shape)
      .set_requires_grad(true);
}

void compare_gradient(const std::function<at::Tensor()>& loss, const at::Tensor& tensor,
                      const at::Tensor& gradient, const std::string& name,
                      const GradientCheckOptions& options) {
  ASSERT_TRUE(gradient.defined()) << name << " has no gradient";
  ASSERT_TRUE(tensor.is_contiguous()) << name;
  const at::Tensor flat = gradient.contiguous().view({-1});
  const std::int64_t count = flat.numel(), checked = std::min(count, options.max_elements);
  for (std::int64_t i = 0; i < checked; ++i) {
    const std::int64_t index = i * count / checked;
    const double expected = central_difference(loss, tensor, index, options.step),
                 actual = flat[index].item<double>();
    EXPECT_NEAR(actual, expected, options.tolerance * std::max(1.0, std::abs(expected)))
        << name << " element " << index << " of " << count;
  }
}

void check_gradients(const std::function<at::Tensor()>& loss, const std::vector<at::Tensor>& inputs,
                     ParamStore* store, const GradientCheckOptions& options) {
  for (at::Tensor input : inputs) input.mutable_grad() = at::Tensor();
  if (store != nullptr) store->zero_gradients();
  loss().backward();
  if (store != nullptr) store->finalize_gradients();
  for (std::size_t i = 0; i < inputs.size(); ++i)
    compare_gradient(loss, inputs[i], inputs[i].grad().clone(), "input " + std::to_string(i),
                     options);
  if (store == nullptr) return;
  std::vector<at::Tensor> once;
  for (const Parameter* parameter : store->parameters()) {
    once.push_back(parameter->grad().clone());
    compare_gradient(loss, parameter->value(), once.back(), parameter->name(), options);
  }
  loss().backward();
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(at::allclose(store->parameters()[i]->grad(), once[i] * 2, 1e-12, 1e-12))
        << store->parameters()[i]->name() << " does not accumulate";
  }
}

double difference(const at::Tensor& a, const at::Tensor& b) {
  if (a.numel() == 0) return 0;
  return ((a - b).abs().max() / b.abs().max().clamp_min(1)).item<double>();
}

}  // namespace megatron
