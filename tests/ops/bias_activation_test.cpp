// The clamped gate of GPT-OSS in float64, against PyTorch's eager formula and central differences.
#include "megatron/ops/bias_activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

constexpr double kClamp = 0.8, kOffset = 1, kTolerance = 1e-14;
constexpr ActivationForm kForm{Activation::quick_gelu, true, kClamp, kOffset};

/// The formula of transformers' GptOssExperts, with [gate | up] and a weight for each row.
at::Tensor eager(const at::Tensor& x, const at::Tensor& bias, const at::Tensor& weights) {
  const std::vector<at::Tensor> halves = (x + bias).chunk(2, -1);
  const at::Tensor gate = halves[0].clamp({}, kClamp), up = halves[1].clamp(-kClamp, kClamp);
  return (up + kOffset) * (gate * at::sigmoid(gate * 1.702)) * weights.unsqueeze(1);
}

/// Rows [gate | up] on both sides of the bounds, and with `at_bounds` some exactly at them.
struct Inputs {
  explicit Inputs(bool at_bounds) {
    const at::NoGradGuard no_grad;
    bias.narrow(0, 0, 2).zero_();
    bias.narrow(0, 6, 2).zero_();
    if (!at_bounds) return;
    x[0].narrow(0, 0, 2).fill_(kClamp);
    x[1].narrow(0, 6, 2).fill_(kClamp);
    x[2].narrow(0, 6, 2).fill_(-kClamp);
  }
  at::Tensor x = random_input({5, 12}, 2), bias = random_input({12}, 0.3, 1),
             weights = random_input({5}, 1, 2), dy = random_input({5, 6}, 1, 3).detach();
};

/// Returns how many gates or ups are clamped.
std::int64_t num_clamped(const Inputs& in) {
  const at::Tensor z = (in.x + in.bias).detach();
  return (z.narrow(1, 0, 6) > kClamp).sum().item<std::int64_t>() +
         (z.narrow(1, 6, 6).abs() > kClamp).sum().item<std::int64_t>();
}

TEST(BiasActivation, ClampedGateEqualsTheEagerFormula) {
  for (const bool at_bounds : {false, true}) {
    const Inputs in(at_bounds);
    ASSERT_GT(num_clamped(in), 8);
    const auto expected = [&] { return eager(in.x, in.bias, in.weights); };
    const at::Tensor dx = gradient_of(expected(), in.x, in.dy),
                     dbias = gradient_of(expected(), in.bias, in.dy),
                     dweights = gradient_of(expected(), in.weights, in.dy);
    const at::NoGradGuard no_grad;
    const at::Tensor y = bias_activation(in.x, in.bias, kForm, in.weights);
    EXPECT_LE(difference(y, expected()), kTolerance);
    const BiasActivationGradients found =
        bias_activation_backward(in.dy, in.x, in.bias, kForm, /*with_result=*/true, in.weights);
    EXPECT_TRUE(found.y.equal(y));
    EXPECT_LE(difference(found.dx, dx), kTolerance);
    EXPECT_LE(difference(found.dbias, dbias), kTolerance);
    EXPECT_LE(difference(found.dweights, dweights), kTolerance);
  }
}

TEST(BiasActivation, GradientsOfTheClampedGateEqualCentralDifferences) {
  const Inputs in(/*at_bounds=*/false);
  const at::Tensor distance =
      ((in.x + in.bias).detach().abs() - kClamp).abs().min();  // to the nearest kink
  ASSERT_GT(distance.item<double>(), 1e-3);
  const at::NoGradGuard no_grad;
  const auto loss = [&] {
    return (bias_activation(in.x, in.bias, kForm, in.weights) * in.dy).sum();
  };
  const BiasActivationGradients found =
      bias_activation_backward(in.dy, in.x, in.bias, kForm, /*with_result=*/false, in.weights);
  const GradientCheckOptions all{.max_elements = 60};
  compare_gradient(loss, in.x, found.dx, "x", all);
  compare_gradient(loss, in.bias, found.dbias, "bias", all);
  compare_gradient(loss, in.weights, found.dweights, "weights", all);
}

/// At gate = C and up = ±C the gradients are those of the formula without a clamp.
TEST(BiasActivation, GradientsPassAtTheBounds) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = at::tensor({kClamp, kClamp, kClamp, -kClamp}, at::kDouble).view({2, 2}),
                   dy = at::ones({2, 1}, at::kDouble);
  const ActivationForm plain{Activation::quick_gelu, true, {}, kOffset};
  const auto gradient = [&](const ActivationForm& form, const at::Tensor& rows) {
    return bias_activation_backward(dy, rows, {}, form, /*with_result=*/false).dx;
  };
  EXPECT_TRUE(gradient(kForm, x).equal(gradient(plain, x)));
  EXPECT_GT(gradient(plain, x).abs().min().item<double>(), 0.1);
  EXPECT_EQ(gradient(kForm, x * (1 + 0x1p-52)).count_nonzero().item<std::int64_t>(), 0);
}

TEST(BiasActivation, AClampNeedsAGate) {
  const at::Tensor x = at::ones({1, 4});
  EXPECT_THROW(bias_activation(x, {}, {Activation::relu, false, 1.0}), InternalError);
  EXPECT_THROW(bias_activation(x, {}, {Activation::relu, false, {}, 1.0}), InternalError);
}

}  // namespace
}  // namespace megatron
