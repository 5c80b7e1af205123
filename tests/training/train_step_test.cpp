// Expected gradients follow by hand from Megatron's normalization: mean over microbatches of (Σ
// loss / tokens), or Σ loss / Σ tokens.
#include "megatron/training/step/train_step.h"

#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "megatron/parallel/rank.h"
#include "support/train_step.h"
#include "training/fake_model.h"

namespace megatron {
namespace {

using testing::HasSubstr;
using namespace testing_models;

class TrainStepTest : public testing::Test {
 protected:
  FakeModel model_{4};
  ParamStore weights_{declared_parameters(model_), {}};
  FakeOptimizer optimizer_{weights_};
  Timers timers_{0, TimerStatistic::minmax};
  Rank rank_;
  PipelinePlan pipeline_;

  TrainStepResult run(std::vector<Microbatch> batch, TrainStepOptions options) {
    options.num_microbatches = static_cast<std::int64_t>(batch.size());
    ListSource source(std::move(batch));
    return train_step({model_, weights_, optimizer_, source, timers_, rank_, pipeline_}, options);
  }
  std::vector<float> weights() const {
    const at::Tensor value = weights_.parameters()[0]->value();
    return {value.data_ptr<float>(), value.data_ptr<float>() + value.numel()};
  }
};

std::vector<Microbatch> uneven_batch() {
  return {microbatch({0, 1}, {1, 2}, {1, 1}), microbatch({1, 2}, {4, 8}, {1, 0})};
}

TEST_F(TrainStepTest, EachMicrobatchIsDividedByItsOwnTokens) {
  const TrainStepResult result = run(uneven_batch(), {.update = {.lr = 1}});
  EXPECT_THAT(weights(), testing::Pointwise(testing::FloatEq(), {0.25f, 0.5f + 2.0f, 0.0f, 0.0f}));
  EXPECT_DOUBLE_EQ(result.losses[0].sum, 0.5 * (1 + 4 + 16));
  EXPECT_DOUBLE_EQ(result.tokens(), 3);
}

TEST_F(TrainStepTest, PerTokenLossDividesOnceByAllTokens) {
  run(uneven_batch(), {.calculate_per_token_loss = true, .update = {.lr = 3}});
  EXPECT_THAT(weights(), testing::Pointwise(testing::FloatEq(), {1.0f, 6.0f, 0.0f, 0.0f}));
}

TEST_F(TrainStepTest, MicrobatchWithoutCountedTokensContributesNothing) {
  const TrainStepResult result = run({microbatch({0, 1}, {1, 2}, {0, 0})}, {.update = {.lr = 1}});
  EXPECT_THAT(weights(), testing::Each(0.0f));
  EXPECT_EQ(result.loss(), 0);
}

/// One whole sample, and two of which a quarter each is computed.
TEST_F(TrainStepTest, CountsWhatIsComputedOfPaddedSamples) {
  std::vector<Microbatch> batch = uneven_batch();
  batch[1].packed = {.cu_seqlens = {0, 1, 2}, .num_samples = 2, .padded_length = 4};
  EXPECT_EQ(run(batch, {}).computed_samples, std::pair(1.5, 1.125));
}

TEST_F(TrainStepTest, SamplesCarryTheirOrdinals) {
  run(uneven_batch(), {.first_ordinal = 40});
  ASSERT_EQ(model_.seen_ordinals.size(), 2u);
  EXPECT_EQ(model_.seen_ordinals[0].item<std::int64_t>(), 40);
  EXPECT_EQ(model_.seen_ordinals[1].item<std::int64_t>(), 41);
}

TEST_F(TrainStepTest, NanLossNamesIterationMicrobatchSampleAndCause) {
  auto batch = uneven_batch();
  batch.push_back(microbatch({0, 1}, {NAN, 2}, {1, 1}));
  try {
    run(batch, {.iteration = 7, .first_ordinal = 40});
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr(
            "iteration 7: the loss of microbatch 3 of 3 (sample 42 of the training order) is NaN"));
    EXPECT_THAT(error.what(), HasSubstr("every weight is finite"));
    EXPECT_THAT(error.what(), HasSubstr("--iterations-to-skip 7"));
  }
}

TEST_F(TrainStepTest, NanLossNamesTheWeightAtFault) {
  weights_.parameters()[0]->value()[1].fill_(std::numeric_limits<float>::infinity());
  try {
    run(uneven_batch(), {});
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(error.what(), HasSubstr("is infinite"));
    EXPECT_THAT(error.what(), HasSubstr("first weight that is not finite: decoder.weight"));
  }
}

TEST_F(TrainStepTest, NanGradientNamesParameterAndMicrobatch) {
  auto batch = uneven_batch();
  batch[1].tensors["poison"] = at::zeros({1, 2});
  try {
    run(batch, {.iteration = 2, .first_ordinal = 8});
    FAIL();
  } catch (const NonFiniteError& error) {
    EXPECT_THAT(
        error.what(),
        HasSubstr("iteration 2: the gradient of decoder.weight is not finite (every loss was)"));
    EXPECT_THAT(error.what(),
                HasSubstr("first in microbatch 2 of 2 (sample 9 of the training order)"));
  }
}

TEST_F(TrainStepTest, WithoutTheCheckNothingChangesAndTheUpdateIsSkipped) {
  const TrainStepResult result =
      run({microbatch({0, 1}, {NAN, 2}, {1, 1})}, {.check_for_nan = false, .update = {.lr = 1}});
  EXPECT_FALSE(result.update.applied);
  EXPECT_EQ(result.update.non_finite_parameter, "decoder.weight");
  EXPECT_THAT(weights(), testing::Each(0.0f));
}

}  // namespace
}  // namespace megatron
