// Sharding over several mesh axes: every rank holds its part of the whole, and the owned slices
// tile it.
#include "megatron/params/sharding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/global_tensor.h"
#include "support/message_of.h"

namespace megatron {
namespace {

/// Experts [4, 24, 5]: ep divides the experts, etp their rows (gate | up) or their columns.
const Sharding kExperts[] = {
    {{4, 24, 5}, {{.dim = 0}, {.dim = 1, .blocks = {{12}, {12}}}}},
    {{4, 5, 24}, {{.dim = 0}, {.dim = 2}}},
    {{4, 24, 5}, {{.dim = 0}, {.sums_gradients = true}}},
    {{4, 20, 3}, {{.dim = 0}, {.dim = 1, .blocks = {{12}, {4, false}, {4, false}}}}},
    {{4, 24, 3}, {{.dim = 0}, {.dim = 1, .blocks = {{12}, {4, false, 2}, {4, false, 2}, {4}}}}},
    {{4, 13}, {{.dim = 0}, {.dim = 1, .pad_multiple = 4}}},
};

TEST(Sharding, TwoAxesDivideTheWhole) {
  for (const Sharding& sharding : kExperts) {
    using Sizes = std::pair<std::int64_t, std::int64_t>;
    for (const auto& [ep_size, etp_size] : {Sizes{2, 2}, {4, 1}, {1, 4}, {4, 2}}) {
      at::Tensor owners = at::zeros(sharding.global_shape, at::kInt);
      const at::Tensor whole =
          at::arange(num_elements(sharding.global_shape), at::kDouble).view(sharding.global_shape);
      for (std::int64_t rank = 0; rank < ep_size * etp_size; ++rank) {
        const std::vector<Axis> axes{{"ep", rank / etp_size, ep_size},
                                     {"etp", rank % etp_size, etp_size}};
        at::Tensor local = at::full(sharding.local_shape(axes), -1.0, at::kDouble);
        EXPECT_EQ(local.size(0), 4 / ep_size);
        Shape previous;
        for (const TensorSlice& slice : sharding.slices(axes)) {
          EXPECT_LT(previous, slice.local_offset) << "slices ascend";
          previous = slice.local_offset;
          at::Tensor mine = slice_of(local, slice.local_offset, slice.shape);
          EXPECT_TRUE((mine == -1).all().item<bool>()) << "slices overlap";
          mine.copy_(slice_of(whole, slice.global_offset, slice.shape));
        }
        for (const TensorSlice& slice : sharding.owned_slices(axes))
          slice_of(owners, slice.global_offset, slice.shape).add_(1);
      }
      EXPECT_TRUE((owners == 1).all().item<bool>()) << "every element has one owner";
    }
  }
}

/// Two groups of Mamba's B and C: two of four ranks hold each, and the other blocks are divided.
TEST(Sharding, RanksShareTheUnitsOfABlock) {
  const Sharding sharding =
      Sharding::split({16, 3}, 0, {{8}, {4, /*splittable=*/false, 2}, {4, false, 2}});
  const std::vector<Axis> axes{{"tp", 2, 4}};
  EXPECT_EQ(sharding.local_shape(axes), (Shape{6, 3}));
  EXPECT_EQ(sharding.splits[0].num_sharers(axes[0]), 2);
  const std::vector<TensorSlice> slices = sharding.slices(axes),
                                 shared = sharding.shared_slices(axes, 0);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0], (TensorSlice{{4, 0}, {0, 0}, {2, 3}}));
  EXPECT_EQ(slices[1], (TensorSlice{{10, 0}, {2, 0}, {2, 3}}));
  EXPECT_EQ(slices[2], (TensorSlice{{14, 0}, {4, 0}, {2, 3}}));
  EXPECT_EQ(shared, (std::vector<TensorSlice>{slices[1], slices[2]}));
  const std::vector<Axis> two{{"tp", 1, 2}};
  EXPECT_EQ(sharding.local_shape(two), (Shape{8, 3}));
  EXPECT_EQ(sharding.splits[0].num_sharers(two[0]), 1);
  EXPECT_TRUE(sharding.shared_slices(two, 0).empty());
  EXPECT_THROW(Sharding::split({9, 3}, 0, {{9, false, 3}}).local_shape(two), UserError);
}

TEST(Sharding, ASliceOfTwoAxesHasTheNumbersOfTheWhole) {
  for (const Sharding& sharding : kExperts) {
    GlobalTensors global;
    const ParameterSpec spec{sharding, Init::normal(1), {}};
    for (std::int64_t rank = 0; rank < 4; ++rank) {
      BareModule model;
      const Parameter& parameter =
          model.add_over("experts", spec, {{"ep", rank / 2, 2}, {"etp", rank % 2, 2}});
      ParamStore store(declared_parameters(model), {.with_gradients = false});
      store.initialize(77);
      global.put(parameter, parameter.value());
    }
    BareModule model;
    const Parameter& whole = model.add_over("experts", spec, {Axis{"ep"}, Axis{"etp"}});
    ParamStore store(declared_parameters(model), {.with_gradients = false});
    store.initialize(77);
    at::Tensor expected = whole.value();
    for (std::size_t d = 0; d < sharding.global_shape.size(); ++d)
      expected = expected.narrow(static_cast<std::int64_t>(d), 0, sharding.global_shape[d]);
    EXPECT_TRUE(at::equal(global.take().at("experts"), expected));
  }
}

TEST(Sharding, AnAxisThatDoesNotDivideIsNamed) {
  const std::vector<Axis> axes{{"ep", 0, 3}, {"etp", 0, 1}};
  EXPECT_NE(message_of([&] {
              kExperts[0].local_shape(axes);
            }).find("a parameter block of 4 rows cannot be split over ep=3"),
            std::string::npos);
}

}  // namespace
}  // namespace megatron
