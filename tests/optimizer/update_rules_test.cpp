// Several update rules in one optimizer: each parameter moves as with its rule alone, and keeps the
// state of its rule only.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/sin.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "megatron/config/optimizer_config.h"
#include "megatron/optimizer/elementwise_rule.h"
#include "megatron/optimizer/optimizer.h"
#include "megatron/parallel/rank.h"
#include "support/bare_module.h"
#include "support/data_parallel_ranks.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

struct ThreeMatrices : BareModule {
  Parameter& bias = add("bias", normal_spec({70}, {.no_decay = true}));
  Parameter& embedding = add("embedding", normal_spec({300, 7}, {.embedding = true}));
  Parameter& matrix = add("matrix", normal_spec({90, 31}));
};

bool is_matrix(const Parameter& parameter) {
  return parameter.sharding().global_shape.size() == 2 && !parameter.spec().tags.embedding;
}
bool is_no_matrix(const Parameter& parameter) { return !is_matrix(parameter); }

/// SGD for matrices, AdamW for the rest.
std::vector<std::unique_ptr<UpdateRule>> two_rules(const ParamStore& store,
                                                   const MainParameters& main) {
  std::vector<std::unique_ptr<UpdateRule>> rules;
  rules.push_back(make_sgd({}, store, main, is_matrix));
  rules.push_back(make_adamw({}, store, main, is_no_matrix));
  return rules;
}

struct Result {
  std::map<std::string, at::Tensor> weights;
  std::vector<double> norms;
};

/// Runs three steps and returns the weights. `make` creates the optimizer of a store.
template <class Make>
Result train(const Make& make, const ParamStore::Options& options = {}, std::int64_t ranks = 1) {
  ThreeMatrices model;
  ParamStore store(declared_parameters(model), options);
  const std::unique_ptr<Optimizer> optimizer = make(store);
  optimizer->main_parameters().initialize(5);
  Result result;
  for (int step = 0; step < 3; ++step) {
    store.zero_gradients();
    for (Parameter* parameter : store.parameters())
      parameter->contribute(
          at::sin(at::arange(num_elements(parameter->local_shape()), at::kFloat) + step)
              .view(parameter->local_shape()) /
          static_cast<double>(ranks));
    store.finalize_gradients();
    result.norms.push_back(
        optimizer->step({.lr = 0.01, .decoupled_lr = 0.03, .weight_decay = 0.1}).grad_norm);
  }
  optimizer->main_parameters().wait_all_gather_params();
  for (const Parameter* parameter : store.parameters())
    result.weights[parameter->name()] = parameter->value().clone();
  return result;
}

std::unique_ptr<Optimizer> mixed(ParamStore& store) {
  return make_optimizer({}, store, {}, two_rules);
}

std::unique_ptr<Optimizer> alone(ParamStore& store, const char* name) {
  OptimizerConfig config;
  config.optimizer = name;
  return make_optimizer(config, store);
}

TEST(UpdateRules, EachParameterFollowsItsOwnRule) {
  const Result got = train(mixed),
               adam = train([](ParamStore&store) { return alone(store, "adam"); }),
               sgd = train([](ParamStore&store) { return alone(store, "sgd"); });
  EXPECT_TRUE(at::equal(got.weights.at("matrix"), sgd.weights.at("matrix")));
  EXPECT_TRUE(at::equal(got.weights.at("bias"), adam.weights.at("bias")));
  EXPECT_TRUE(at::equal(got.weights.at("embedding"), adam.weights.at("embedding")));
  EXPECT_EQ(got.norms, adam.norms) << "one norm over the parameters of all rules";
}

/// A factor of 1/4 and a fourfold rate have the bits of the rate alone.
TEST(UpdateRules, AParameterHasAFactorOfItsLearningRate) {
  const auto train_with = [](const char* rule, double factor, double lr) {
    BareModule model;
    model.add("matrix", normal_spec({9, 4}, {.learning_rate_factor = factor}));
    model.add("table", normal_spec({9, 4}, {.embedding = true, .learning_rate_factor = factor}));
    ParamStore store(declared_parameters(model), {});
    const auto optimizer = alone(store, rule);
    optimizer->main_parameters().initialize(5);
    for (int step = 0; step < 2; ++step) {
      store.zero_gradients();
      for (Parameter* parameter : store.parameters())
        parameter->contribute(at::sin(at::arange(36, at::kFloat) + step).view({9, 4}));
      store.finalize_gradients();
      optimizer->step({.lr = lr, .decoupled_lr = 3 * lr, .weight_decay = 0.1});
    }
    return std::pair(store.find("matrix")->value().clone(), store.find("table")->value().clone());
  };
  for (const char* rule : {"adam", "sgd"}) {
    const auto [matrix, table] = train_with(rule, 1, 0.01);
    const auto [other_matrix, other_table] = train_with(rule, 0.25, 0.04);
    EXPECT_TRUE(at::equal(matrix, other_matrix)) << rule;
    EXPECT_TRUE(at::equal(table, other_table)) << rule;
    EXPECT_FALSE(at::equal(matrix, table)) << rule;
  }
}

TEST(UpdateRules, AParameterKeepsTheStateOfItsRule) {
  ThreeMatrices model;
  ParamStore store(declared_parameters(model), {});
  const auto optimizer = mixed(store);
  EXPECT_THAT(optimizer->state_tensors(),
              ElementsAre("exp_avg.bias", "exp_avg.embedding", "exp_avg_sq.bias",
                          "exp_avg_sq.embedding", "momentum_buffer.matrix"));
  std::vector<std::string> visited;
  optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& state, const at::Tensor& flat) {
        EXPECT_EQ(flat.numel(), piece.count);
        visited.push_back(state + "." + piece.parameter->name());
      });
  std::ranges::sort(visited);
  EXPECT_EQ(visited, optimizer->state_tensors());
  // Whole blocks of 256 elements of float32.
  EXPECT_EQ(optimizer->num_state_bytes(), 4 * 256 * (11 + 2 * (1 + 9)));
}

/// A rule over whole matrices finds each of them whole on one rank.
TEST(UpdateRules, RanksShareWholeMatrices) {
  const Result expected = train(mixed);
  const DataLayout layout{.dp = 3, .distributed_optimizer = true, .whole_parameters = true};
  on_data_ranks(layout, [&](const Rank& rank, Communicators& communicators) {
    const Result got =
        train(mixed, {.data_parallel = data_parallel_of(layout, rank, communicators)}, 3);
    for (const auto& [name, weight] : expected.weights)
      EXPECT_TRUE(at::allclose(got.weights.at(name), weight, 1e-5, 1e-6)) << name;
  });
}

TEST(UpdateRules, EveryParameterNeedsExactlyOne) {
  const auto make_with = [](ParameterSelector first, ParameterSelector second) {
    ThreeMatrices model;
    ParamStore store(declared_parameters(model), {});
    make_optimizer({}, store, {}, [&](const ParamStore& weights, const MainParameters& main) {
      std::vector<std::unique_ptr<UpdateRule>> rules;
      rules.push_back(make_sgd({}, weights, main, first));
      rules.push_back(make_adamw({}, weights, main, second));
      return rules;
    });
  };
  EXPECT_THAT([&] { make_with(is_matrix, is_matrix); },
              ThrowsMessage<std::exception>(HasSubstr("no update rule for bias")));
  EXPECT_THAT([&] { make_with(is_matrix, every_parameter); },
              ThrowsMessage<std::exception>(HasSubstr("two update rules for matrix")));
}

}  // namespace
}  // namespace megatron
