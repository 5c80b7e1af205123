// Compares 16-bit training with torch.optim on float32 main weights, and loss scaling with Megatron
// Core's DynamicGradScaler (fixtures by make_precision_fixtures.py).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logspace.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/optimizer/optimizer.h"
#include "support/bare_module.h"

namespace megatron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Json fixture(const std::string& name) {
  return read_json(MEGATRON_SOURCE_DIR "/tests/optimizer/fixtures/" + name).at("cases");
}

at::ScalarType type_named(const std::string& name) {
  return name == "bf16" ? at::kBFloat16 : name == "fp16" ? at::kHalf : at::kFloat;
}

std::vector<double> flat(const Json& json) {
  std::vector<double> values;
  for (const Json& item : json) {
    if (item.is_array()) {
      for (const double value : flat(item)) values.push_back(value);
    } else {
      values.push_back(item);
    }
  }
  return values;
}

at::Tensor like(const at::Tensor& tensor, const Json& json) {
  return at::tensor(flat(json), at::kDouble).view(tensor.sizes());
}

double distance(const at::Tensor& tensor, const Json& json) {
  return (tensor.to(at::kDouble) - like(tensor, json)).abs().max().item<double>();
}

/// A decayed embedding `weight` [3, 5] and a `bias` [5] without decay, in 16 or 32 bits, with their
/// optimizer.
struct Training {
  explicit Training(const OptimizerConfig& config, const LossScaling& scaling = {},
                    const ParamStore::Options& options = {}) {
    model.add("bias", {Sharding::replicated({5}), Init::normal(1), {.no_decay = true}});
    model.add("weight", {Sharding::replicated({3, 5}), Init::normal(1), {.embedding = true}});
    store.emplace(declared_parameters(model), options);
    optimizer = make_optimizer(config, *store, scaling);
  }
  at::Tensor main(const std::string& name) {
    return optimizer->main_parameters().tensors()[name == "bias" ? 0 : 1].view(
        store->find(name)->local_shape());
  }
  const at::Tensor& weight(const std::string& name) { return store->find(name)->value(); }
  StepResult step(const StepOptions& options, const std::map<std::string, at::Tensor>& gradients) {
    store->zero_gradients();
    for (const auto& [name, gradient] : gradients) store->find(name)->contribute(gradient);
    store->finalize_gradients();
    return optimizer->step(options);
  }
  std::map<std::string, at::Tensor> everything() {
    std::map<std::string, at::Tensor> all;
    for (const char* name : {"weight", "bias"}) {
      all[name] = weight(name).clone();
      all[std::string("main_") + name] = main(name).clone();
    }
    optimizer->visit_state(
        [&](const ParameterPiece& piece, const std::string& state, at::Tensor& tensor) {
          all[state + "." + piece.parameter->name()] =
              tensor.clone().view(piece.parameter->local_shape());
        });
    return all;
  }

  BareModule model;
  std::optional<ParamStore> store;
  std::unique_ptr<Optimizer> optimizer;
};

OptimizerConfig config_of(const Json& settings) {
  OptimizerConfig config;
  config.optimizer = settings.at("optimizer");
  config.clip_grad = settings.at("clip_grad");
  config.adam_beta1 = settings.value("beta1", 0.9);
  config.adam_beta2 = settings.value("beta2", 0.999);
  config.adam_eps = settings.value("eps", 1e-8);
  config.sgd_momentum = settings.value("momentum", 0.0);
  config.exp_avg_dtype = config.exp_avg_sq_dtype = settings.value("state", "fp32");
  return config;
}

ParamStore::Options bits(const std::string& dtype) {
  return {.dtype = type_named(dtype), .grad_dtype = at::kFloat};
}

void follow(const Json& example) {
  const Json& settings = example.at("settings");
  Training training(config_of(settings), {.initial = settings.at("loss_scale")},
                    bits(settings.at("dtype")));
  for (const char* name : {"weight", "bias"})
    training.main(name).copy_(like(training.main(name), example.at(name)));
  training.optimizer->main_parameters().copy_main_params_to_model_params();
  StepOptions options{.lr = settings.at("lr"), .weight_decay = settings.at("weight_decay")};
  if (!settings.at("decoupled_lr").is_null())
    options.decoupled_lr = settings.at("decoupled_lr").get<double>();
  // A bfloat16 state may round to its neighbour, an error of 2⁻⁸ of a moment. It moves a weight by
  // that fraction of the learning rate.
  const bool has_narrow_states = settings.value("state", "fp32") != "fp32";
  const double tolerance = has_narrow_states ? 0x1p-8 * 0.01 : 3e-6;
  for (const Json& step : example.at("steps")) {
    std::map<std::string, at::Tensor> gradients;
    for (const char* name : {"weight", "bias"})
      gradients[name] =
          like(training.main(name), step.at(std::string(name) + "_grad")).to(at::kFloat);
    const StepResult result = training.step(options, gradients);
    EXPECT_TRUE(result.applied);
    EXPECT_NEAR(result.grad_norm, step.at("norm").get<double>(), 1e-6);
    for (const char* name : {"weight", "bias"}) {
      EXPECT_LE(distance(training.main(name), step.at(std::string("main_") + name)), tolerance)
          << settings << name;
      EXPECT_TRUE(at::equal(training.weight(name),
                            training.main(name).to(type_named(settings.at("dtype")))))
          << settings << name;
    }
  }
}

TEST(MixedPrecision, FollowsTorchOptimOnMainWeights) {
  const Json cases = fixture("mixed_precision.json");
  ASSERT_EQ(cases.size(), 5u);
  for (const Json& example : cases) follow(example);
}

TEST(MixedPrecision, WeightsAreTheRoundedFloat32Draw) {
  Training wide{OptimizerConfig{}}, narrow(OptimizerConfig{}, {}, bits("bf16"));
  wide.optimizer->main_parameters().initialize(7);
  narrow.optimizer->main_parameters().initialize(7);
  EXPECT_FALSE(wide.optimizer->main_parameters().has_fp32_copies());
  EXPECT_TRUE(at::equal(narrow.main("weight"), wide.weight("weight")));
  EXPECT_TRUE(at::equal(narrow.weight("weight"), wide.weight("weight").to(at::kBFloat16)));
  narrow.store->initialize(7);
  EXPECT_TRUE(at::equal(narrow.weight("weight"), wide.weight("weight").to(at::kBFloat16)));
}

TEST(MixedPrecision, NormOfTheParametersIsThatOfTheMainOnes) {
  Training training(OptimizerConfig{}, {}, bits("bf16"));
  training.main("weight").fill_(1 + 0x1p-10);  // rounds to 1 in bfloat16
  training.optimizer->main_parameters().copy_main_params_to_model_params();
  EXPECT_DOUBLE_EQ(training.optimizer->main_parameters().norm(), (1 + 0x1p-10) * std::sqrt(15.0));
}

TEST(MixedPrecision, ZerosAreCountedInEveryTypeOfGradient) {
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    Training training(OptimizerConfig{}, {}, {.dtype = at::kBFloat16, .grad_dtype = type});
    at::Tensor gradient = at::ones({3, 5});
    gradient[1].zero_();
    const StepResult result = training.step({.lr = 1, .count_zeros = true}, {{"weight", gradient}});
    EXPECT_EQ(result.num_zeros, 5 + 5);
    EXPECT_DOUBLE_EQ(result.grad_norm, std::sqrt(10.0));
  }
}

TEST(MixedPrecision, SmallUpdatesAddUpInTheMainWeights) {
  OptimizerConfig config;
  config.optimizer = "sgd";
  config.sgd_momentum = config.clip_grad = 0;
  Training training(config, {}, bits("bf16"));
  training.main("weight").fill_(1);
  training.optimizer->main_parameters().copy_main_params_to_model_params();
  for (int i = 0; i < 16; ++i)
    training.step({.lr = 0x1p-11},
                  {{"weight", at::ones({3, 5})}});  // below half a step of bfloat16 at 1
  EXPECT_TRUE(at::equal(training.main("weight"), at::full({3, 5}, 1 - 0x1p-7)));
  EXPECT_EQ(training.weight("weight")[0][0].item<double>(), 1 - 0x1p-7);
}

TEST(MixedPrecision, StatesBelowFloat32KeepWhatAVisitorReads) {
  for (const char* type : {"bf16", "fp16"}) {
    OptimizerConfig config;
    config.exp_avg_dtype = config.exp_avg_sq_dtype = type;
    Training training(config, {}, bits("bf16"));
    training.step({.lr = 0.1},
                  {{"weight", at::randn({3, 5}) * at::logspace(-6, 3, 15).view({3, 5})},
                   {"bias", at::zeros({5})}});
    const auto before = training.everything(), again = training.everything();
    for (const auto& [name, tensor] : before)
      EXPECT_TRUE(at::equal(tensor, again.at(name))) << type << " " << name;
  }
}

TEST(MixedPrecision, Float16StatesHoldMomentsThatFloat16CannotHold) {
  OptimizerConfig config;
  config.exp_avg_sq_dtype = "fp16";
  config.clip_grad = 0;
  Training training(config);
  const at::Tensor gradient =
      at::full({3, 5}, 1e-5);  // its square, 10⁻¹⁰, is below the smallest float16
  training.step({.lr = 0.1}, {{"weight", gradient}});
  const at::Tensor moment = training.everything().at("exp_avg_sq.weight");
  EXPECT_NEAR(moment[0][0].item<double>(), 1e-10 * 0.001, 1e-13 * 0x1p-10);
}

/// Runs some steps, loads everything saved into a second training, and runs more steps on both.
void expect_resume_to_be_exact(const OptimizerConfig& config, const LossScaling& scaling,
                               const ParamStore::Options& options) {
  Training first(config, scaling, options), second(config, scaling, options);
  const StepOptions step{.lr = 0.1, .decoupled_lr = 0.05, .weight_decay = 0.1};
  const auto gradient = [](int i) {
    return std::map<std::string, at::Tensor>{
        {"weight", at::sin(at::arange(15, at::kFloat) * (i + 1)).view({3, 5})},
        {"bias", at::cos(at::arange(5, at::kFloat) * (i + 1))}};
  };
  const std::map<std::string, at::Tensor> infinite{{"weight", at::full({3, 5}, kInfinity)},
                                                   {"bias", at::ones({5})}};
  for (int i = 0; i < 3; ++i) first.step(step, gradient(i));
  first.step(step, infinite);
  auto saved = first.everything();
  for (const char* name : {"weight", "bias"})
    second.main(name).copy_(saved.at(std::string("main_") + name));
  second.optimizer->main_parameters().copy_main_params_to_model_params();
  second.optimizer->visit_state(
      [&](const ParameterPiece& piece, const std::string& state, at::Tensor& tensor) {
        tensor.copy_(saved.at(state + "." + piece.parameter->name()).flatten());
      });
  second.optimizer->set_num_steps(first.optimizer->num_steps());
  if (const auto scale = first.optimizer->loss_scale_state())
    second.optimizer->set_loss_scale_state(*scale);
  for (Training* training : {&first, &second}) {
    training->step(step, infinite);
    for (int i = 3; i < 8; ++i) training->step(step, gradient(i));
  }
  const auto expected = first.everything();
  for (const auto& [name, tensor] : second.everything())
    EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
  EXPECT_EQ(first.optimizer->loss_scale_state(), second.optimizer->loss_scale_state());
  EXPECT_EQ(first.optimizer->num_steps(), 8);
}

TEST(MixedPrecision, ResumeIsExact) {
  OptimizerConfig adam, sgd, narrow, half;
  sgd.optimizer = "sgd";
  narrow.exp_avg_dtype = narrow.exp_avg_sq_dtype = "bf16";
  half.exp_avg_dtype = half.exp_avg_sq_dtype = "fp16";
  const LossScaling dynamic{
      .initial = 8, .is_dynamic = true, .min = 1, .window = 3, .hysteresis = 2};
  expect_resume_to_be_exact(adam, {}, bits("bf16"));
  expect_resume_to_be_exact(sgd, {}, bits("bf16"));
  expect_resume_to_be_exact(narrow, {}, bits("bf16"));
  expect_resume_to_be_exact(half, dynamic, bits("fp16"));
  expect_resume_to_be_exact(adam, dynamic, bits("fp16"));
  expect_resume_to_be_exact(adam, {}, {.dtype = at::kBFloat16, .grad_dtype = at::kBFloat16});
}

TEST(LossScale, ReplaysMegatronCore) {
  for (const Json& example : fixture("loss_scale.json")) {
    const LossScaling scaling{.initial = example.at("initial"),
                              .is_dynamic = true,
                              .min = example.at("min"),
                              .window = example.at("window"),
                              .hysteresis = example.at("hysteresis")};
    Training training(OptimizerConfig{}, scaling, bits("fp16"));
    const std::string steps = example.at("steps");
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const StepResult result =
          training.step({.lr = 0}, {{"bias", at::full({5}, steps[i] == 'b' ? kInfinity : 1.0)}});
      const Json& expected = example.at("states").at(i);
      EXPECT_EQ(result.applied, steps[i] == 'g');
      EXPECT_EQ(result.loss_scale, expected.at(0).get<double>()) << steps.substr(0, i + 1);
      EXPECT_EQ(training.optimizer->loss_scale().item<double>(), expected.at(0).get<double>());
      EXPECT_EQ(training.optimizer->loss_scale_state(),
                (LossScaleState{expected.at(0).get<double>(), expected.at(1).get<std::int64_t>(),
                                expected.at(2).get<std::int64_t>()}))
          << steps.substr(0, i + 1);
    }
  }
}

TEST(LossScale, ConstantScaleStaysAndSkips) {
  Training training(OptimizerConfig{}, {.initial = 128}, bits("fp16"));
  const auto before = training.everything();
  const StepResult result = training.step({.lr = 1}, {{"bias", at::full({5}, kInfinity)}});
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.loss_scale, 128);
  EXPECT_EQ(training.optimizer->loss_scale_state(), std::nullopt);
  for (const auto& [name, tensor] : training.everything())
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
}

TEST(LossScale, VetoLeavesEverythingAsItIs) {
  Training training(OptimizerConfig{},
                    {.initial = 8, .is_dynamic = true, .min = 1, .window = 1, .hysteresis = 1},
                    bits("fp16"));
  const auto before = training.everything();
  const StepResult result =
      training.step({.lr = 1, .found_inf = at::ones({}, at::kDouble)}, {{"bias", at::ones({5})}});
  EXPECT_FALSE(result.applied);
  EXPECT_EQ(result.non_finite_parameter, "");
  EXPECT_EQ(result.loss_scale, 8);
  EXPECT_EQ(training.optimizer->num_steps(), 0);
  for (const auto& [name, tensor] : training.everything())
    EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
  EXPECT_TRUE(
      training.step({.lr = 1, .found_inf = at::zeros({}, at::kDouble)}, {{"bias", at::ones({5})}})
          .applied);
}

TEST(LossScale, FollowsTheFlags) {
  TrainingConfig training;
  EXPECT_EQ(loss_scaling(training).initial, 1);
  training.bf16 = true;
  EXPECT_FALSE(loss_scaling(training).is_dynamic);
  training = {};
  training.fp16 = true;
  EXPECT_TRUE(loss_scaling(training).is_dynamic);
  EXPECT_EQ(loss_scaling(training).initial, 4294967296.0);
  training.loss_scale.loss_scale = 512;
  EXPECT_FALSE(loss_scaling(training).is_dynamic);
  EXPECT_EQ(loss_scaling(training).initial, 512);
}

}  // namespace
}  // namespace megatron
