// 8-bit states: the tables against their definition and against ATen's FP8, and the conversions
// against a search for the nearest number.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/state_codes.h"
#include "kernels/optimizer_operations.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/optimizer/optimizer_state.h"
#include "support/bare_module.h"

namespace megatron {
namespace {

using kernels::StateCode;

struct NamedCode {
  const char* name;
  const StateCode* code;
  bool is_non_negative;
  std::int64_t size;  ///< different numbers
};

std::vector<NamedCode> codes() {
  return {{"dynamic", &kernels::dynamic_code(), false, 256},
          {"unsigned_dynamic", &kernels::unsigned_dynamic_code(), true, 256},
          {"e4m3", &kernels::e4m3_code(false), false, 253},
          {"e4m3_unsigned", &kernels::e4m3_code(true), true, 127}};
}

/// The numbers of a code, ascending.
at::Tensor numbers_of(const StateCode& code) {
  const at::Tensor all = at::from_blob(const_cast<float*>(code.values), {StateCode::kSize}).clone();
  return std::get<0>(at::_unique(all, /*sorted=*/true));
}

TEST(StateCode, HasTheNumbersOfThePaper) {
  // Decade i of seven has 2^i equal parts of [0.1, 1], whose midpoints are the numbers.
  std::vector<double> expected{0, 1, -1};
  for (int decade = 0; decade < 7; ++decade) {
    const at::Tensor edges = at::linspace(0.1, 1, (1 << decade) + 1, at::kDouble);
    const at::Tensor middles = (edges.slice(0, 0, -1) + edges.slice(0, 1)) / 2;
    for (std::int64_t i = 0; i < middles.numel(); ++i) {
      const double value = middles[i].item<double>() * std::pow(10.0, decade - 6);
      expected.push_back(value);
      const bool is_replaced = decade == 6 && i + 1 == middles.numel();
      if (!is_replaced) expected.push_back(-value);
    }
  }
  const at::Tensor sorted = std::get<0>(at::tensor(expected, at::kDouble).sort()).to(at::kFloat);
  const at::Tensor found = numbers_of(kernels::dynamic_code());
  ASSERT_EQ(found.sizes(), sorted.sizes());
  EXPECT_LE(((found - sorted).abs() / sorted.abs().clamp_min(1e-30)).max().item<float>(), 1e-6);
}

TEST(StateCode, Fp8HasTheNumbersOfAten) {
  at::Tensor all = at::arange(256).to(at::kByte).view(at::kFloat8_e4m3fn).to(at::kFloat);
  all = all.index_select(0, at::isfinite(all).nonzero().view(-1));
  const at::Tensor expected = std::get<0>(at::_unique(all, true)) / 448;
  EXPECT_TRUE(at::equal(numbers_of(kernels::e4m3_code(false)), expected));
}

at::Tensor test_values(bool is_non_negative) {
  const std::int64_t size = 40 * kernels::kStateBlock + 17;
  at::Tensor values = at::randn({size}) * at::pow(10, at::rand({size}) * 12 - 10);
  values.narrow(0, 0, kernels::kStateBlock).zero_();
  values.narrow(0, 300, 100).zero_();
  return is_non_negative ? values * values : values;
}

struct Packed {
  at::Tensor bytes, scales;
};
Packed encode(const StateCode& code, const at::Tensor& values) {
  const std::int64_t blocks = (values.numel() + kernels::kStateBlock - 1) / kernels::kStateBlock;
  const Packed packed{at::empty({values.numel()}, at::kByte), at::empty({blocks})};
  kernels::conversions().encode_bytes(code, values.const_data_ptr<float>(),
                                      packed.bytes.mutable_data_ptr<std::uint8_t>(),
                                      packed.scales.mutable_data_ptr<float>(), values.numel());
  return packed;
}
at::Tensor decode(const StateCode& code, const Packed& packed) {
  at::Tensor values = at::empty(packed.bytes.sizes());
  kernels::conversions().decode_bytes(code, packed.bytes.const_data_ptr<std::uint8_t>(),
                                      packed.scales.const_data_ptr<float>(),
                                      values.mutable_data_ptr<float>(), values.numel());
  return values;
}

TEST(StateCode, EncodesTheNearestNumberAndItsOwnNumbersExactly) {
  at::manual_seed(1);
  for (const NamedCode& test : codes()) {
    SCOPED_TRACE(test.name);
    const at::Tensor numbers = numbers_of(*test.code);
    EXPECT_EQ(numbers.numel(), test.size);
    const at::Tensor values = test_values(test.is_non_negative);
    const Packed packed = encode(*test.code, values);
    const at::Tensor decoded = decode(*test.code, packed);
    for (std::int64_t i = 0; i < values.numel(); ++i) {
      const float scale = packed.scales[i / kernels::kStateBlock].item<float>(),
                  value = values[i].item<float>() / scale;
      const float nearest = (numbers - value).abs().min().item<float>();
      const float distance = std::abs(decoded[i].item<float>() / scale - value);
      if (test.is_non_negative && value > 0) {
        ASSERT_GT(decoded[i].item<float>(), 0) << "a positive number became zero";
      }
      // A positive number below half of the smallest becomes the smallest, not zero.
      const bool is_raised = test.is_non_negative && value < numbers[1].item<float>();
      // One rounding of the quotient and one of the product: 2⁻²³ of the largest.
      if (!is_raised) {
        ASSERT_LE(distance, nearest + 0x1p-23f) << i;
      }
    }
    const Packed again = encode(*test.code, decoded);
    EXPECT_TRUE(at::equal(again.bytes, packed.bytes));
    EXPECT_TRUE(at::equal(again.scales, packed.scales));
  }
}

TEST(StateCode, ZeroBytesAreZeros) {
  for (const NamedCode& test : codes()) {
    EXPECT_EQ(test.code->values[0], 0) << test.name;
    EXPECT_EQ(kernels::encode_state(*test.code, 0.0f), 0) << test.name;
    EXPECT_EQ(kernels::encode_state(*test.code, -0.0f), 0) << test.name;
  }
}

/// Least squares on a fixed problem; returns the loss after 300 steps.
double loss_with(const std::string& dtype) {
  BareModule model;
  model.add("weight", {Sharding::replicated({64, 48}), Init::zeros(), {}});
  ParamStore store(declared_parameters(model), {});
  OptimizerConfig config;
  config.exp_avg_dtype = config.exp_avg_sq_dtype = dtype;
  config.weight_decay = 0;
  const auto optimizer = make_optimizer(config, store);
  optimizer->main_parameters().initialize(1);
  at::manual_seed(7);
  const at::Tensor inputs = at::randn({256, 48}) * at::logspace(-1, 0.5, 48),
                   targets = at::matmul(inputs, at::randn({48, 64})) + at::randn({256, 64}) * 0.1;
  Parameter& weight = *store.parameters()[0];
  double loss = 0;
  for (int step = 0; step < 300; ++step) {
    const at::Tensor error = at::matmul(inputs, weight.value().t()) - targets;
    loss = (error * error).mean().item<double>();
    store.zero_gradients(1);
    weight.contribute(at::matmul(error.t(), inputs) / 256);
    store.finalize_gradients();
    optimizer->step({.lr = 0.02});
  }
  return loss;
}

// The claim of the paper is that 8-bit Adam trains as 32-bit Adam does. On this problem, whose loss
// falls by a factor of thousands, the factor between the two losses is small.
TEST(StateCode, TrainsLikeFloat32) {
  const double exact = loss_with("fp32");
  EXPECT_LT(exact, 0.1);
  EXPECT_LT(loss_with("int8"), 2 * exact);
  EXPECT_LT(loss_with("fp8"), 4 * exact);
}

}  // namespace
}  // namespace megatron
