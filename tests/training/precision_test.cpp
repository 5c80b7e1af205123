// Checks a step in 16 bits: how the loss scale and loss averaging affect the gradients, and that a
// skipped step changes nothing. Expected weights follow by hand from the model of fake_model.h,
// whose gradient is Σ mask·(w[token] − label), and plain gradient descent.
#include <ATen/ops/equal.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "megatron/config/optimizer_config.h"
#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/resilience/non_finite.h"
#include "megatron/training/step/train_step.h"
#include "support/train_step.h"
#include "training/fake_model.h"

namespace megatron {
namespace {

using namespace testing_models;

OptimizerConfig descent() {
  OptimizerConfig config;
  config.optimizer = "sgd";
  config.sgd_momentum = config.clip_grad = 0;
  return config;
}

struct StepRun {
  StepRun(at::ScalarType dtype, const LossScaling& scaling,
          const OptimizerConfig& config = descent())
      : weights(declared_parameters(model), {.dtype = dtype, .grad_dtype = at::kFloat}),
        optimizer(make_optimizer(config, weights, scaling)) {}

  TrainStepResult step(std::vector<Microbatch> batch, TrainStepOptions options) {
    options.num_microbatches = static_cast<std::int64_t>(batch.size());
    ListSource source(std::move(batch));
    return train_step({model, weights, *optimizer, source, timers, Rank(), pipeline}, options);
  }
  std::vector<float> main() const {
    const at::Tensor& tensor = optimizer->main_parameters().tensors()[0];
    return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()};
  }

  FakeModel model{4};
  ParamStore weights;
  std::unique_ptr<Optimizer> optimizer;
  Timers timers{1, TimerStatistic::minmax};
  PipelinePlan pipeline;
};

std::vector<Microbatch> uneven_batch() {
  return {microbatch({0, 1}, {1, 2}, {1, 1}), microbatch({1, 2}, {4, 8}, {1, 0})};
}
std::vector<Microbatch> huge_batch() {
  return {microbatch({0, 1}, {1, 2}, {1, 1}), microbatch({0, 1}, {1e5, 2}, {1, 1})};
}

const LossScaling kDynamic{
    .initial = 1024, .is_dynamic = true, .min = 1, .window = 2, .hysteresis = 1};

TEST(Precision, LossScaleCancelsOut) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf}) {
    for (const double scale : {1.0, 1024.0}) {
      StepRun run(dtype, {.initial = scale});
      const TrainStepResult result = run.step(uneven_batch(), {.update = {.lr = 1}});
      EXPECT_THAT(run.main(), testing::ElementsAre(0.25f, 2.5f, 0.0f, 0.0f)) << dtype << scale;
      EXPECT_DOUBLE_EQ(result.update.grad_norm, std::sqrt(0.0625 + 6.25));
      EXPECT_DOUBLE_EQ(result.losses[0].sum, 10.5);
      EXPECT_THAT(result.microbatch_losses, testing::ElementsAre(2.5, 8.0));
    }
  }
}

TEST(Precision, PerTokenLossDividesOnceByAllTokens) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    StepRun run(dtype, {.initial = 1024});
    run.step(uneven_batch(), {.calculate_per_token_loss = true, .update = {.lr = 3}});
    EXPECT_THAT(run.main(), testing::Pointwise(testing::FloatNear(1e-6), {1.0f, 6.0f, 0.0f, 0.0f}));
  }
}

TEST(Precision, OverflowSkipsTheStepAndLowersTheScale) {
  StepRun run(at::kHalf, kDynamic);
  const TrainStepResult skipped =
      run.step(huge_batch(), {.check_for_nan = false, .update = {.lr = 1}});
  EXPECT_FALSE(skipped.update.applied);
  EXPECT_EQ(skipped.update.loss_scale, 512);
  EXPECT_EQ(skipped.update.non_finite_parameter, "decoder.weight");
  EXPECT_EQ(run.optimizer->num_steps(), 0);
  EXPECT_THAT(run.main(), testing::Each(0.0f));
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(
        run.step(uneven_batch(), {.check_for_nan = false, .update = {.lr = 1}}).update.applied);
  EXPECT_EQ(run.optimizer->loss_scale_state(), (LossScaleState{1024, 0, 1}));
}

TEST(Precision, NanLossLeavesWeightsStatesAndScaleAlone) {
  OptimizerConfig adam;
  StepRun run(at::kHalf, kDynamic, adam);
  run.step(uneven_batch(), {.update = {.lr = 0.1}});
  const auto before = run.main();
  std::map<std::string, at::Tensor> states;
  run.optimizer->visit_state([&](const ParameterPiece&, const std::string& name,
                                 at::Tensor& tensor) { states[name] = tensor.clone(); });
  const auto scale = run.optimizer->loss_scale_state();
  auto batch = uneven_batch();
  batch.push_back(microbatch({3, 1}, {std::numeric_limits<float>::quiet_NaN(), 2}, {1, 1}));
  try {
    run.step(batch, {.iteration = 2, .first_ordinal = 3, .update = {.lr = 0.1}});
    ADD_FAILURE() << "a NaN loss was accepted";
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(),
                testing::HasSubstr(
                    "the loss of microbatch 3 of 3 (sample 5 of the training order) is NaN"));
  }
  EXPECT_EQ(run.main(), before);
  EXPECT_EQ(run.optimizer->loss_scale_state(), scale);
  EXPECT_EQ(run.optimizer->num_steps(), 1);
  run.optimizer->visit_state(
      [&](const ParameterPiece&, const std::string& name, at::Tensor& tensor) {
        EXPECT_TRUE(at::equal(tensor, states[name]));
      });
}

TEST(Precision, PhasesOfTheOptimizerAreTimedUnderMegatronsNames) {
  StepRun run(at::kFloat, {});
  run.step(uneven_batch(), {.update = {.lr = 1, .count_zeros = true}});
  for (const char* name :
       {"optimizer", "optimizer-unscale-and-check-inf", "optimizer-clip-main-grad",
        "optimizer-count-zeros", "optimizer-inner-step"}) {
    EXPECT_GT(run.timers.seconds(name), 0) << name;
  }
}

}  // namespace
}  // namespace megatron
