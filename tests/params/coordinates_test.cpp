// Random numbers depend on coordinates: a shard, a slice of the sequence or a part of the batch
// draws the numbers of the whole.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "megatron/base/philox.h"
#include "megatron/ops/dropout.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

at::Tensor slice(at::Tensor tensor, const Shape& offset, const Shape& shape) {
  for (std::size_t d = 0; d < shape.size(); ++d)
    tensor = tensor.narrow(static_cast<std::int64_t>(d), offset[d], shape[d]);
  return tensor;
}

at::Tensor initialised(const ParameterSpec& spec, const Axis& axis,
                       at::ScalarType dtype = at::kFloat) {
  BareModule model;
  const Parameter& parameter = model.add("layer.weight", spec, axis);
  ParamStore store(declared_parameters(model), {.dtype = dtype});
  store.initialize(77);
  return parameter.value().clone();
}

TEST(Initialisation, AShardDrawsItsPartOfTheWhole) {
  const Sharding layouts[] = {
      Sharding::replicated({5, 3}),
      Sharding::split({12, 5}, 0),
      Sharding::split({5, 12}, 1),
      Sharding::split({24, 3}, 0, {{12}, {12}}),                       // gate | up
      Sharding::split({40, 3}, 0, {{6}, {2, false}, {2, false}}, 4),   // four query groups
      Sharding::split({20, 3}, 0, {{12}, {4, false}, {4, false}}, 1),  // one query group, shared
      Sharding::vocabulary({13, 3}, 4)};
  for (const Sharding& sharding : layouts) {
    for (const Init& init : {Init::normal(0.5), Init::xavier_uniform(3, 5), Init::ones()}) {
      const ParameterSpec spec{sharding, init, {}};
      const at::Tensor whole = slice(initialised(spec, {}), Shape(sharding.global_shape.size(), 0),
                                     sharding.global_shape);
      for (const std::int64_t size : {2, 4}) {
        std::int64_t padding = 0;
        for (std::int64_t rank = 0; rank < size; ++rank) {
          const Axis axis{"tp", rank, size};
          const at::Tensor shard = initialised(spec, axis);
          at::Tensor rest = shard.clone();
          for (const TensorSlice& part : sharding.slices({&axis, 1})) {
            EXPECT_TRUE(at::equal(slice(shard, part.local_offset, part.shape),
                                  slice(whole, part.global_offset, part.shape)));
            slice(rest, part.local_offset, part.shape).zero_();
          }
          EXPECT_EQ(rest.abs().max().item<double>(), 0) << "padding is zero";
          padding += shard.size(0);
        }
        EXPECT_GE(padding, sharding.splits.front().dim == 0 ? sharding.global_shape[0] : 0);
      }
    }
  }
}

TEST(Initialisation, DrawsTheDistributionItNames) {
  const at::Tensor normal =
      initialised({Sharding::replicated({400, 500}), Init::normal(0.5), {}}, {}).to(at::kDouble) /
      0.5;
  EXPECT_NEAR(normal.mean().item<double>(), 0, 0.01);  // 4.5 standard errors
  EXPECT_NEAR(normal.square().mean().item<double>(), 1, 0.015);
  EXPECT_NEAR(normal.pow(4).mean().item<double>(), 3, 0.1);
  EXPECT_NEAR((normal.abs() < 1.959964).to(at::kDouble).mean().item<double>(), 0.95, 0.0025);
  const double bound = std::sqrt(6.0 / (400 + 500));
  const at::Tensor uniform =
      initialised({Sharding::replicated({400, 500}), Init::xavier_uniform(400, 500), {}}, {})
          .to(at::kDouble) /
      bound;
  EXPECT_LE(uniform.abs().max().item<double>(), 1);
  EXPECT_NEAR(uniform.mean().item<double>(), 0, 0.006);
  EXPECT_NEAR(uniform.square().mean().item<double>(), 1.0 / 3, 0.004);
}

/// Normals are Box and Muller's (1958) in float64, from the Philox words of the element's
/// coordinates. Smaller types are rounded from there, also where a faster formula draws them.
TEST(Initialisation, NormalsAreThoseOfTheFormula) {
  const ParameterSpec spec{Sharding::replicated({400, 500}), Init::normal(0.5), {}};
  std::vector<double> numbers;
  for (std::uint64_t block = 0; block < 50'000; ++block) {
    const auto words = philox_block(philox_key(77, "layer.weight"), block, 0);
    const auto uniform = [&](std::size_t i) { return (words[i] + 0.5) / 4294967296.0; };
    for (const std::size_t pair : {0UL, 2UL}) {
      const double radius = 0.5 * std::sqrt(-2 * std::log(uniform(pair))),
                   angle = 2 * std::numbers::pi * uniform(pair + 1);
      numbers.push_back(radius * std::cos(angle));
      numbers.push_back(radius * std::sin(angle));
    }
  }
  const at::Tensor expected = at::tensor(numbers, at::kDouble).view({400, 500});
  EXPECT_TRUE(at::equal(initialised(spec, {}, at::kDouble), expected));
  EXPECT_TRUE(at::equal(initialised(spec, {}), expected.to(at::kFloat)));
  EXPECT_TRUE(
      at::equal(initialised(spec, {}, at::kBFloat16), expected.to(at::kFloat).to(at::kBFloat16)));
}

TEST(Initialisation, DependsOnSeedAndNameOnly) {
  const auto draw = [](const char* name, std::uint64_t seed) {
    BareModule model;
    model.add("another", normal_spec({3}));
    const Parameter& parameter = model.add(name, normal_spec({100}));
    ParamStore store(declared_parameters(model), {});
    store.initialize(seed);
    return parameter.value().clone();
  };
  EXPECT_TRUE(at::equal(draw("a", 1), draw("a", 1)));
  EXPECT_FALSE(at::equal(draw("a", 1), draw("b", 1)));
  EXPECT_FALSE(at::equal(draw("a", 1), draw("a", 2)));
}

DropoutSite site(const std::vector<std::int64_t>& ordinals, double probability = 0.3) {
  return {.probability = probability,
          .key = philox_key(11, "mlp_bda"),
          .sample_ordinals = at::tensor(ordinals, at::kLong)};
}

TEST(Dropout, FollowsItsDefinition) {
  constexpr std::int64_t kSequence = 5, kHidden = 13;
  const std::vector<std::int64_t> ordinals{3, std::int64_t{1} << 40};
  const DropoutSite here = site(ordinals);
  const at::Tensor kept = dropout(at::ones({kSequence, 2, kHidden}, at::kDouble), here);
  for (std::int64_t position = 0; position < kSequence; ++position) {
    for (std::size_t sample = 0; sample < 2; ++sample) {
      for (std::int64_t feature = 0; feature < kHidden; ++feature) {
        const std::int64_t element = position * kHidden + feature;
        const std::uint32_t lane =
            philox_block(here.key, static_cast<std::uint64_t>(element / 4),
                         static_cast<std::uint64_t>(ordinals[sample]))[element % 4];
        const double expected = lane >= std::floor(0.3 * 0x1p32) ? 1 / 0.7 : 0;
        EXPECT_DOUBLE_EQ(kept[position][static_cast<std::int64_t>(sample)][feature].item<double>(),
                         expected);
      }
    }
  }
}

/// Streams of a row are further features of it.
TEST(Dropout, OfStreamsIsThatOfWiderRows) {
  const at::Tensor x = random_input({6, 3, 2, 10}).detach(),
                   residual = random_input({6, 3, 2, 10}, 1, 2).detach();
  const at::Tensor wide = dropout_add(x.flatten(2), residual.flatten(2), site({4, 5, 6}));
  EXPECT_TRUE(at::equal(dropout_add(x, residual, site({4, 5, 6})).flatten(2), wide));
}

TEST(Dropout, PartsOfBatchAndSequenceEqualTheWhole) {
  const at::Tensor x = random_input({6, 3, 10}).detach(),
                   residual = random_input({6, 3, 10}, 1, 2).detach();
  const at::Tensor whole = dropout_add(x, residual, site({4, 5, 6}));
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    const auto part = [&](const at::Tensor& t) { return t.narrow(1, sample, 1); };
    EXPECT_TRUE(at::equal(dropout_add(part(x), part(residual), site({4 + sample})), part(whole)));
  }
  const auto later = [&](const at::Tensor& t) { return t.narrow(0, 2, 4); };
  DropoutSite later_rows = site({4, 5, 6});
  later_rows.positions.first = 2;
  EXPECT_TRUE(at::equal(dropout_add(later(x), later(residual), later_rows), later(whole)));
}

TEST(Dropout, KeepsItsShareAndItsMean) {
  const at::Tensor kept = dropout(at::ones({100, 2, 1000}), site({0, 1}, 0.1));
  EXPECT_NEAR((kept == 0).to(at::kDouble).mean().item<double>(), 0.1, 0.003);
  EXPECT_NEAR(kept.mean().item<double>(), 1, 0.004);
}

TEST(Dropout, Gradient) {
  const at::Tensor x = random_input({3, 2, 5}), residual = random_input({3, 2, 5}, 1, 2);
  check_gradients(
      [&] {
        DropoutSite later_rows = site({4, 5});
        later_rows.positions.first = 1;
        return weighted_sum(dropout_add(x, residual, later_rows));
      },
      {x, residual}, nullptr);
  check_gradients([&] { return weighted_sum(dropout(x, site({4, 5}))); }, {x}, nullptr);
  check_gradients([&] { return weighted_sum(dropout_add(x, residual, {})); }, {x, residual},
                  nullptr);
}

}  // namespace
}  // namespace megatron
