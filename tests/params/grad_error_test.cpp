#include "megatron/params/grad_error.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/all.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <limits>

#include "megatron/params/param_store.h"
#include "support/bare_module.h"

namespace megatron {
namespace {

constexpr std::int64_t kElements = 30'000;

/// Sums of `count` contributions: in bfloat16 alone, in float32, and with error feedback before and
/// after its last rounding.
struct Sums {
  at::Tensor bf16, fp32, with_error, rounded, exact;
};

Sums sum_of(int count) {
  at::manual_seed(count);
  const auto bf16 = at::TensorOptions().dtype(at::kBFloat16);
  Sums sums{.bf16 = at::zeros({kElements}, bf16),
            .fp32 = at::zeros({kElements}),
            .with_error = {},
            .rounded = at::zeros({kElements}, bf16),
            .exact = at::zeros({kElements}, at::kDouble)};
  at::Tensor error = at::zeros({kElements}, at::kChar);
  for (int i = 0; i < count; ++i) {
    // A mean that accumulates, and noise as gradients have it.
    const at::Tensor part = at::randn({kElements}) + 0.5;
    sums.exact += part.to(at::kDouble);
    sums.fp32 += part;
    sums.bf16 += part;
    add_with_error_feedback(sums.rounded, error, i == 0, [&](at::Tensor& grad, bool fresh) {
      ASSERT_EQ(grad.scalar_type(), at::kFloat);
      fresh ? grad.copy_(part) : grad.add_(part);
    });
  }
  sums.with_error =
      ((sums.rounded.view(at::kShort).to(at::kInt) * 65536) + error.to(at::kInt) * 256)
          .view(at::kFloat);
  return sums;
}

double rms_error(const at::Tensor& sum, const at::Tensor& exact) {
  return (sum.to(at::kDouble) - exact).square().mean().sqrt().item<double>() /
         exact.square().mean().sqrt().item<double>();
}

TEST(GradError, TheSumOfMicrobatchesIsAsGoodAsInFloat32UntilItIsRounded) {
  for (const int count : {8, 64, 256}) {
    const Sums sums = sum_of(count);
    // One rounding to eight bits, of a number anywhere between two powers of two, has a relative
    // error of 2⁻⁸/√3 at most in the root mean square.
    EXPECT_LT(rms_error(sums.rounded, sums.exact), 0x1p-8 / std::sqrt(3.0));
    // Before it: a rounding to sixteen bits with each contribution.
    EXPECT_LT(rms_error(sums.with_error, sums.exact), 0x1p-16 / std::sqrt(3.0) * std::sqrt(count));
    // The result is that of a float32 sum which is rounded once.
    EXPECT_LT(rms_error(sums.rounded, sums.exact),
              1.01 * rms_error(sums.fp32.to(at::kBFloat16), sums.exact));
    // Without feedback there is such a rounding with each contribution, the early ones of smaller
    // sums.
    EXPECT_GT(rms_error(sums.bf16, sums.exact), 1.5 * rms_error(sums.rounded, sums.exact));
  }
}

TEST(GradError, LargeGradientsAreConvertedInParts) {
  const at::Tensor values = at::arange(300'000).to(at::kFloat) * 0x1p-4 + 0x1p-9;
  at::Tensor grad = at::zeros({300'000}, at::kBFloat16), error = at::zeros({300'000}, at::kChar);
  for (const bool fresh : {true, false}) {
    add_with_error_feedback(grad, error, fresh, [&](at::Tensor& sum, bool is_fresh) {
      is_fresh ? sum.copy_(values) : sum.add_(values);
    });
  }
  const at::Tensor distance = (grad.to(at::kFloat) - 2 * values).abs();
  EXPECT_TRUE(at::all(distance <= values * (2 * 0x1.02p-8)).item<bool>());  // half of a last bit
}

TEST(GradError, KeepsInfinityAndNan) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const at::Tensor values = at::tensor({kInfinity, -kInfinity, std::nanf("0x3fffff"), -0.0f, 0.0f});
  at::Tensor grad = at::zeros({5}, at::kBFloat16), error = at::zeros({5}, at::kChar);
  for (const bool fresh : {true, false}) {
    add_with_error_feedback(grad, error, fresh, [&](at::Tensor& sum, bool is_fresh) {
      is_fresh ? sum.copy_(values) : sum.add_(0.0f);
    });
    EXPECT_TRUE(at::equal(grad.isinf(), values.isinf()));
    EXPECT_TRUE(at::equal(grad.isnan(), values.isnan()));
    EXPECT_EQ(grad[0].item<float>(), kInfinity);
    EXPECT_EQ(grad[1].item<float>(), -kInfinity);
  }
}

TEST(GradError, AStoreSumsItsContributionsThroughIt) {
  const auto gradient = [](bool has_feedback) {
    BareModule model;
    model.add("a", {Sharding::replicated({40, 9}), Init::zeros(), {}});
    model.add("b", {Sharding::replicated({77}), Init::zeros(), {}});
    ParamStore store(declared_parameters(model), {.dtype = at::kBFloat16,
                                                  .grad_dtype = at::kBFloat16,
                                                  .has_grad_error_feedback = has_feedback});
    EXPECT_EQ(store.num_grad_error_bytes() > 0, has_feedback);
    at::Tensor last;
    for (int step = 0; step < 2; ++step) {  // the error of a step does not reach the next
      store.zero_gradients(100);
      for (int i = 0; i < 100; ++i) {
        for (Parameter* parameter : store.parameters())
          parameter->contribute(at::full(parameter->local_shape(), i == 0 ? 1.0 : 0x1p-10));
      }
      store.finalize_gradients();
    }
    return at::cat({store.parameters()[0]->grad().flatten(), store.parameters()[1]->grad()});
  };
  // 1 + 99·2⁻¹⁰ = 1.0967, whose nearest bfloat16 is 1.09375; alone, bfloat16 stays at 1.
  EXPECT_TRUE(at::all(gradient(true) == 1.09375).item<bool>());
  EXPECT_TRUE(at::all(gradient(false) == 1).item<bool>());
}

}  // namespace
}  // namespace megatron
