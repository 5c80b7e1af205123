// Parameters that are not trained, weights of several stages, gradients over several axes, and
// buckets whose storage changes.
#include "megatron/params/param_store.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "megatron/parallel/rank.h"
#include "megatron/params/param_store.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::ElementsAre;

/// One parameter of each kind.
struct KindsModule : BareModule {
  Parameter& frozen = add("frozen", {.sharding = Sharding::replicated({7}),
                                     .init = Init::normal(1),
                                     .tags = {.precise = true},
                                     .kind = ParameterKind::frozen});
  Parameter& state = add("state", {.sharding = Sharding::replicated({3}),
                                   .init = Init::ones(),
                                   .tags = {},
                                   .kind = ParameterKind::state,
                                   .dtype = at::kFloat});
  Parameter& trained = add("trained", normal_spec({5, 4}));
};

TEST(ParamStore, OnlyTrainedParametersHaveGradients) {
  KindsModule model;
  ParamStore store(declared_parameters(model), {.dtype = at::kBFloat16, .grad_dtype = at::kFloat});
  store.initialize(1);
  EXPECT_EQ(store.num_parameters(), 7 + 20) << "a state is no weight";
  EXPECT_EQ(model.state.value().scalar_type(), at::kFloat);
  EXPECT_EQ(model.frozen.value().scalar_type(), at::kBFloat16);
  EXPECT_TRUE((model.state.value() == 1).all().item<bool>());
  ASSERT_EQ(store.pieces().size(), 1u);
  EXPECT_EQ(store.pieces()[0].parameter, &model.trained);
  store.zero_gradients();
  EXPECT_FALSE(tracked(model.frozen).requires_grad());
  EXPECT_TRUE(tracked(model.trained).requires_grad());
  model.frozen.contribute(at::ones({7}));
  model.trained.contribute(at::ones({5, 4}));
  store.finalize_gradients();
  EXPECT_FALSE(model.frozen.grad().defined());
  EXPECT_TRUE((model.trained.grad() == 1).all().item<bool>());
}

TEST(ParamStore, FrozenParametersAreNotReduced) {
  for (const bool overlap : {false, true}) {
    on_data_ranks({.dp = 2, .distributed_optimizer = true, .overlap = overlap},
                  [&](const Rank& rank, Communicators& communicators) {
                    KindsModule model;
                    ParamStore store(
                        declared_parameters(model),
                        {.data_parallel = data_parallel_of(
                             {.dp = 2, .distributed_optimizer = true, .overlap = overlap}, rank,
                             communicators)});
                    for (int step = 0; step < 2; ++step) {
                      store.zero_gradients(1);
                      model.trained.contribute(at::full({5, 4}, 1.0 + rank.dp.rank));
                      store.finalize_gradients();
                      store.gather_gradients();
                      EXPECT_TRUE((model.trained.grad() == 3).all().item<bool>());
                    }
                  });
  }
}

TEST(ParamStore, StagesThatShareAWeightAddTheirGradients) {
  constexpr std::int64_t kStages = 4;
  const std::map<std::string, std::vector<std::int64_t>> holders{{"first", {1, 3}},
                                                                 {"second", {0, 1, 3}}};
  run_rank_threads(kStages, [&](Communicators& communicators) {
    const std::int64_t index = communicators.rank();
    BareModule model;
    std::vector<Parameter*> declared;
    for (const auto& [name, ranks] : holders) {
      if (std::ranges::find(ranks, index) == ranks.end()) continue;
      ParameterSpec spec = normal_spec({11, 3});
      spec.holders = {.ranks = ranks, .is_owner = index == ranks.front()};
      declared.push_back(&model.add(name, spec));
    }
    if (index == 3) std::ranges::reverse(declared);  // stages may declare them in any order
    ParamStore store(declared,
                     {.pipeline = {.name = "pp",
                                   .rank = index,
                                   .size = kStages,
                                   .comm = communicators.group(first_ranks(kStages), "pp")},
                      .communicators = &communicators});
    store.zero_gradients();
    for (Parameter* weight : declared)
      weight->contribute(at::full({11, 3}, static_cast<double>(1 << index)));
    store.finalize_gradients();
    for (const Parameter* weight : declared) {
      const bool is_first = weight->name() == "first";
      EXPECT_TRUE((weight->grad() == (is_first ? 2 + 8 : 1 + 2 + 8)).all().item<bool>());
      EXPECT_EQ(weight->owned_slices().size(), index == (is_first ? 1 : 0) ? 1u : 0u)
          << "counted and saved once";
    }
  });
}

TEST(ParamStore, ANameDeclaredTwiceIsOneParameter) {
  BareModule model, other;
  Parameter& weight = model.add("weight", normal_spec({2, 3}));
  EXPECT_EQ(&model.add("weight", normal_spec({2, 3})), &weight);
  EXPECT_NE(&other.add("weight", normal_spec({2, 3})), &weight) << "of another model";
  EXPECT_THAT(declared_parameters(model), ElementsAre(&weight));
  EXPECT_ANY_THROW(model.add("weight", normal_spec({2, 4}))) << "of another shape";
}

TEST(ParamStore, PartsOfAGradientAreSummedOverEachOfItsAxes) {
  on_data_ranks({.dp = 2, .tp = 2}, [&](const Rank& rank, Communicators&) {
    BareModule model;
    const AxisSplit parts{.sums_gradients = true};
    // Any two axes serve: here tp and dp.
    Parameter& both =
        model.add_over("both", {{{6}, {parts, parts}}, Init::normal(1), {}}, {rank.tp, rank.dp});
    Parameter& one = model.add_over("one", {{{6}, {AxisSplit{}, parts}}, Init::normal(1), {}},
                                    {rank.tp, rank.dp});
    Parameter& split = model.add_over(
        "split", {{{4, 6}, {AxisSplit{.dim = 0}, parts}}, Init::normal(1), {}}, {rank.tp, rank.dp});
    ParamStore store(declared_parameters(model), {});
    store.zero_gradients();
    const double mine = 1 << rank.index;  // tp varies fastest
    both.contribute(at::full({6}, mine));
    one.contribute(at::full({6}, mine));
    split.contribute(at::full({2, 6}, mine));
    store.finalize_gradients();
    const double over_dp = rank.tp.rank == 0 ? 1 + 4 : 2 + 8;
    EXPECT_TRUE((both.grad() == 15).all().item<bool>());
    EXPECT_TRUE((one.grad() == over_dp).all().item<bool>());
    EXPECT_TRUE((split.grad() == over_dp).all().item<bool>());
  });
}

TEST(ParamStore, NoBucketSpansTwoUnits) {
  BareModule model;
  std::vector<Parameter*> declared;
  for (const char* name : {"a1", "a2", "b1", "c1", "c2"})
    declared.push_back(&model.add(name, normal_spec({300})));
  ParamStore store(declared, {.unit_starts = {declared[0], declared[2], declared[3]}});
  std::vector<std::string> units;
  for (const ParamBucket& bucket : store.buckets()) {
    std::string unit;
    for (const Parameter* parameter : bucket.parameters) unit += parameter->name();
    units.push_back(unit);
  }
  EXPECT_THAT(units, ElementsAre("c2c1", "b1", "a2a1"));
}

TEST(ParamStore, ValuesFollowTheStorageOfTheirBucket) {
  BareModule model;
  Parameter& first = model.add("first", normal_spec({300}));
  Parameter& second = model.add("second", normal_spec({2, 5}));
  ParamStore store(declared_parameters(model), {});
  store.initialize(3);
  const at::Tensor before = second.value().clone(), storage = store.buckets()[0].value.clone();
  store.bind_values(0, {});
  EXPECT_THAT([&] { first.value(); }, testing::ThrowsMessage<std::exception>(testing::HasSubstr(
                                          "first is read while it has no storage")));
  EXPECT_THROW(store.bind_values(0, storage.narrow(0, 0, 10)), std::exception);
  EXPECT_THROW(store.bind_values(0, storage.to(at::kDouble)), std::exception);
  store.bind_values(0, storage * 2);
  EXPECT_TRUE(at::equal(second.value(), before * 2));
}

}  // namespace
}  // namespace megatron
