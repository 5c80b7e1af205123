// An objective over pairs of sequences, as preference optimisation has it, through a whole training
// step of a GPT: gradients against central differences in float64.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_sigmoid.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/parallel/rank.h"
#include "support/gpt_model.h"
#include "support/gradient_check.h"
#include "support/tiny_gpt.h"
#include "support/train_step.h"
#include "training/fake_model.h"

namespace megatron {
namespace {

using namespace testing_models;

/// −log σ(0.7·(log p(sample 2i) − log p(sample 2i + 1))): direct preference optimisation (Rafailov
/// et al. 2023) without a reference model. The second term is reported only.
Objective pair_objective() {
  const auto count = [](const Microbatch& microbatch) {
    return at::full({}, static_cast<double>(microbatch.num_samples()) / 2, at::kFloat);
  };
  const auto loss = [count](const StepOutput& heads, const Microbatch& microbatch) {
    const at::Tensor log_p =
        -(heads.token_losses * microbatch.at("loss_mask")).sum(1).view({-1, 2});
    const at::Tensor margin = (log_p.select(1, 0) - log_p.select(1, 1)) * 0.7;
    StepOutput output =
        StepOutput::of("pair loss", -at::log_sigmoid(margin).sum(), count(microbatch));
    output.terms.push_back({"accuracy", (margin > 0).sum().to(at::kDouble), count(microbatch)});
    return output;
  };
  return {.names = {"pair loss", "accuracy"}, .count = count, .loss = loss};
}

class PairObjective : public testing::TestWithParam<bool> {
 protected:
  PairObjective() {
    weights_.initialize(3);
    model_->set_objective(pair_objective());
  }
  /// Two microbatches, of two pairs and of one.
  static std::vector<Microbatch> uneven_batch() {
    std::vector<Microbatch> batch{patterned_batch(4, 6, 13), patterned_batch(2, 6, 13)};
    batch[0].tensors["loss_mask"][1][0] = 0;
    batch[1].tensors["labels"].fill_(3);
    batch[1].tensors["loss_mask"][0][5] = 0;
    return batch;
  }
  TrainStepContext context() {
    return {*model_, weights_, optimizer_, source_, timers_, rank_, pipeline_};
  }

  const Rank rank_;
  const std::unique_ptr<Model> model_ = make_gpt_model(tiny_gpt(), rank_, 8);
  ParamStore weights_{declared_parameters(*model_), {.dtype = at::kDouble}};
  FakeOptimizer optimizer_{weights_};
  Timers timers_{0, TimerStatistic::minmax};
  PipelinePlan pipeline_;
  ListSource source_{uneven_batch()};
};

/// Each microbatch is divided by its own number of pairs, or their sum by that of the step.
TEST_P(PairObjective, HasTheGradientOfCentralDifferences) {
  const TrainStepOptions options{.num_microbatches = 2, .calculate_per_token_loss = GetParam()};
  const std::vector<Microbatch> batch = fetch_microbatches(context(), options);
  const StepLosses losses = forward_backward(context(), options, batch);
  const auto loss = [&] {
    const at::NoGradGuard no_gradients;
    const at::Tensor first = model_->forward_step(batch[0], /*training=*/true).root,
                     second = model_->forward_step(batch[1], /*training=*/true).root;
    return GetParam() ? (first + second) / 3 : (first / 2 + second) / 2;
  };
  for (const Parameter* parameter : weights_.parameters())
    compare_gradient(loss, parameter->value(), parameter->grad(), parameter->name(),
                     {.tolerance = 1e-7, .max_elements = 6});
  const TrainStepResult result = read_step(context(), options, losses);
  ASSERT_EQ(result.losses.size(), 2u);
  EXPECT_EQ(result.losses[0].name, "pair loss");
  EXPECT_EQ(result.losses[0].count, 3);
  EXPECT_EQ(result.losses[1].name, "accuracy");
}

INSTANTIATE_TEST_SUITE_P(Normalizers, PairObjective, testing::Bool());

TEST(Objective, MustNameItsTerms) {
  FakeModel model(4);
  model.set_objective({.names = {"another loss"}});
  const ParamStore weights(declared_parameters(model), {});
  EXPECT_THROW(model.forward_step(microbatch({0, 1}, {1, 2}, {1, 1}), /*training=*/false),
               InternalError);
}

/// A second term that is NaN stops the update, and the error names its microbatch.
TEST(Objective, EveryTermIsCheckedForNan) {
  FakeModel model(4);
  ParamStore weights(declared_parameters(model), {});
  FakeOptimizer optimizer(weights);
  ListSource source({microbatch({0, 1}, {1, 2}, {1, 1}), microbatch({2, 3}, {1, 2}, {1, 1})});
  Timers timers(0, TimerStatistic::minmax);
  const Rank rank;
  const PipelinePlan pipeline;
  Objective objective{.names = {kLanguageModelLoss, "second loss"}};
  objective.loss = [](const StepOutput& heads, const Microbatch& microbatch) {
    StepOutput output = heads;
    const double value = microbatch.at("tokens")[0][0].item<std::int64_t>() == 2 ? NAN : 1;
    output.terms.push_back({"second loss", at::full({}, value, at::kDouble), heads.count});
    return output;
  };
  model.set_objective(objective);
  try {
    train_step({model, weights, optimizer, source, timers, rank, pipeline},
               {.num_microbatches = 2, .update = {.lr = 1}});
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the loss of microbatch 2 of 2"));
  }
  EXPECT_EQ(weights.parameters()[0]->value().abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace megatron
