// Compares AdamW and SGD with torch.optim (fixtures by make_optimizer_fixtures.py), and checks the
// rules of a step: clip, skip, decay groups, zeros.
#include "megatron/optimizer/optimizer.h"

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "support/bare_module.h"

namespace megatron {
namespace {

ParameterSpec plain(Shape shape, ParameterTags tags = {}) {
  return {Sharding::replicated(std::move(shape)), Init::zeros(), tags};
}

at::Tensor tensor_of(const Json& json, c10::ScalarType dtype) {
  const bool is_matrix = json.at(0).is_array();
  std::vector<double> values;
  for (const Json& row : json) {
    if (!is_matrix) values.push_back(row);
    for (std::size_t i = 0; is_matrix && i < row.size(); ++i) values.push_back(row[i]);
  }
  const at::Tensor flat = at::tensor(values, at::kDouble).to(dtype);
  return is_matrix ? flat.view({static_cast<std::int64_t>(json.size()), -1}) : flat;
}

void set_gradient(ParamStore& store, std::string_view name, const at::Tensor& gradient) {
  store.find(name)->contribute(gradient);
}

OptimizerConfig config_of(const Json& settings) {
  OptimizerConfig config;
  config.optimizer = settings.at("optimizer");
  config.clip_grad = settings.at("clip_grad");
  config.adam_beta1 = settings.value("beta1", 0.9);
  config.adam_beta2 = settings.value("beta2", 0.999);
  config.adam_eps = settings.value("eps", 1e-8);
  config.sgd_momentum = settings.value("momentum", 0.0);
  return config;
}

void expect_near(const at::Tensor& actual, const Json& expected, double tolerance,
                 const std::string& what) {
  const at::Tensor reference = tensor_of(expected, at::kDouble);
  EXPECT_LE((actual.to(at::kDouble) - reference).abs().max().item<double>(), tolerance) << what;
}

void follow(const Json& example, c10::ScalarType dtype, double tolerance) {
  BareModule model;
  model.add("weight", plain({3, 5}));
  model.add("bias", plain({5}, {.no_decay = true}));
  ParamStore store(declared_parameters(model), {.dtype = dtype});
  for (const char* name : {"weight", "bias"})
    store.find(name)->value().copy_(tensor_of(example.at(name), dtype));
  const auto optimizer = make_optimizer(config_of(example.at("settings")), store);
  const StepOptions options{.lr = example.at("settings").at("lr"),
                            .weight_decay = example.at("settings").at("weight_decay")};
  for (const Json& step : example.at("steps")) {
    store.zero_gradients();
    set_gradient(store, "weight", tensor_of(step.at("weight_grad"), dtype));
    set_gradient(store, "bias", tensor_of(step.at("bias_grad"), dtype));
    store.finalize_gradients();
    const StepResult result = optimizer->step(options);
    EXPECT_TRUE(result.applied);
    EXPECT_NEAR(result.grad_norm, step.at("norm").get<double>(), tolerance);
    for (const char* name : {"weight", "bias"})
      expect_near(store.find(name)->value(), step.at(name), tolerance,
                  example.at("settings").dump());
  }
  std::map<std::string, at::Tensor> state;
  optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& name, at::Tensor& tensor) {
        if (piece.parameter->name() == "weight")
          state[name] = tensor.view(piece.parameter->local_shape());
      });
  EXPECT_EQ(state.size(), example.at("state").size());
  for (const auto& [name, values] : example.at("state").items())
    expect_near(state.at(name), values, tolerance, name);
}

TEST(Optimizer, FollowsTorchOptimInFloat64AndFloat32) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/optimizer/fixtures/optimizers.json");
  for (const Json& example : fixture.at("cases")) {
    follow(example, at::kDouble, 1e-14);
    follow(example, at::kFloat, 2e-6);
  }
}

/// A store with one parameter of ones and its gradient.
struct OneTensor {
  explicit OneTensor(Shape shape, ParameterTags tags = {}, c10::ScalarType dtype = at::kFloat) {
    parameter = &model.add("w", plain(std::move(shape), tags));
    store.emplace(declared_parameters(model), ParamStore::Options{.dtype = dtype});
    parameter->value().fill_(1);
  }
  StepResult step(const OptimizerConfig& config, const at::Tensor& gradient,
                  const StepOptions& options) {
    if (!optimizer) optimizer = make_optimizer(config, *store);
    store->zero_gradients();
    parameter->contribute(gradient);
    store->finalize_gradients();
    return optimizer->step(options);
  }
  BareModule model;
  Parameter* parameter = nullptr;
  std::optional<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

OptimizerConfig plain_sgd() {
  OptimizerConfig config;
  config.optimizer = "sgd";
  config.sgd_momentum = 0;
  config.clip_grad = 0;
  return config;
}

TEST(Optimizer, PlainSgdSubtractsExactlyTheScaledGradient) {
  OneTensor one({1000});
  at::Tensor gradient = at::arange(1000, at::kFloat).mul_(1e-3f).sub_(0.3f);
  one.step(plain_sgd(), gradient, {.lr = 16384});
  EXPECT_TRUE(at::equal(one.parameter->value(), 1 - gradient * 16384));
}

TEST(Optimizer, NonFiniteGradientsChangeNothingAndNameTheFirstParameter) {
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    BareModule model;
    for (const char* name : {"b", "c", "a"}) model.add(name, plain({4}));
    ParamStore store(declared_parameters(model), {});
    OptimizerConfig config;
    const auto optimizer = make_optimizer(config, store);
    store.zero_gradients();
    set_gradient(store, "a", at::ones({4}));
    set_gradient(store, "b", at::full({4}, bad));
    set_gradient(store, "c", at::full({4}, bad));
    store.finalize_gradients();
    const StepResult result = optimizer->step({.lr = 1});
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.non_finite_parameter, "b");
    EXPECT_EQ(optimizer->num_steps(), 0);
    EXPECT_EQ(store.find("a")->value().abs().max().item<double>(), 0);
    optimizer->visit_state([](const ParameterPiece&, const std::string&, at::Tensor& t) {
      EXPECT_EQ(t.abs().max().item<double>(), 0);
    });
  }
}

TEST(Optimizer, QkNormTagObeysItsOwnFlag) {
  for (const bool apply : {false, true}) {
    OptimizerConfig config = plain_sgd();
    config.apply_wd_to_qk_layernorm = apply;
    OneTensor one({4}, {.no_decay = true, .qk_norm = true});
    one.step(config, at::zeros({4}), {.lr = 0.5, .weight_decay = 0.5});
    EXPECT_EQ(one.parameter->value()[0].item<double>(), apply ? 0.75 : 1.0);
  }
}

TEST(Optimizer, PaddingRowsAreNotCountedAsZeros) {
  BareModule model;
  Parameter& word = model.add("word", {Sharding::vocabulary({5, 2}, 4), Init::zeros(), {}});
  ParamStore store(declared_parameters(model), {});
  ASSERT_EQ(word.local_shape(), (Shape{8, 2}));
  const auto optimizer = make_optimizer(plain_sgd(), store);
  at::Tensor gradient = at::zeros({8, 2});
  gradient.narrow(0, 0, 5).fill_(2);
  gradient[1].zero_();
  store.zero_gradients();
  word.contribute(gradient);
  store.finalize_gradients();
  const StepResult result = optimizer->step({.lr = 1, .count_zeros = true});
  EXPECT_EQ(result.num_zeros, 2);
  EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(8 * 4.0));
}

TEST(Optimizer, NormAndUpdateDoNotDependOnThreads) {
  const at::Tensor gradient = at::sin(at::arange(300001, at::kFloat));
  std::vector<double> norms;
  std::vector<at::Tensor> weights;
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    OneTensor one({300001});
    norms.push_back(
        one.step(OptimizerConfig{}, gradient, {.lr = 0.1, .weight_decay = 0.1}).grad_norm);
    weights.push_back(one.parameter->value().clone());
  }
  at::set_num_threads(1);
  EXPECT_NEAR(norms[0], gradient.to(at::kDouble).norm().item<double>(), 1e-9);
  for (std::size_t i = 1; i < norms.size(); ++i) {
    EXPECT_EQ(norms[0], norms[i]);
    EXPECT_TRUE(at::equal(weights[0], weights[i]));
  }
}

TEST(Optimizer, StateSavedAndRestoredContinuesTheSameTrajectory) {
  for (const char* kind : {"adam", "sgd"}) {
    OptimizerConfig config;
    config.optimizer = kind;
    const StepOptions options{.lr = 0.1, .weight_decay = 0.1};
    OneTensor first({100}), second({100});
    first.step(config, at::arange(100, at::kFloat), options);
    second.parameter->value().copy_(first.parameter->value());
    second.optimizer = make_optimizer(config, *second.store);
    std::map<std::string, at::Tensor> saved;
    first.optimizer->visit_state([&](const ParameterPiece&, const std::string& name,
                                     at::Tensor& tensor) { saved[name] = tensor.clone(); });
    second.optimizer->visit_state([&](const ParameterPiece&, const std::string& name,
                                      at::Tensor& tensor) { tensor.copy_(saved.at(name)); });
    second.optimizer->set_num_steps(first.optimizer->num_steps());
    for (OneTensor* one : {&first, &second}) one->step(config, at::ones({100}), options);
    EXPECT_TRUE(at::equal(first.parameter->value(), second.parameter->value())) << kind;
  }
}

}  // namespace
}  // namespace megatron
