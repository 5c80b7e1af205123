// Compares the phases of a run's data with Megatron-LM's (fixtures of
// tests/parity/make_phase_fixtures.py), and checks the rules on --phase-transition-iterations.
#include "megatron/config/data_phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "config/small_run.h"
#include "megatron/base/json.h"
#include "megatron/config/batch_schedule.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainingConfig training_of(const Json& example) {
  TrainingConfig training;
  training.micro_batch_size = 1;
  training.global_batch_size = example.at("size");
  training.train_samples = example.at("samples");
  training.train_iters = training.train_samples / training.global_batch_size;
  training.phase_transition_iterations = example.at("transitions").get<std::vector<std::int64_t>>();
  return training;
}

TEST(DataPhase, SamplesEqualMegatrons) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/config/fixtures/data_phases.json");
  std::size_t points = 0;
  for (const Json& example : fixture) {
    const TrainingConfig training = training_of(example);
    std::int64_t iteration = 0;
    for (const Json& expected : example.at("phases")) {
      EXPECT_EQ(data_phase(training, iteration).num_samples, expected[0]) << example << iteration;
      EXPECT_EQ(
          consumed_samples_in_phase(training, iteration, iteration * training.global_batch_size),
          expected[1])
          << example << iteration;
      ++iteration, ++points;
    }
  }
  EXPECT_GT(points, 80u);
}

/// With a batch size that grows, a phase has the samples of its steps.
TEST(DataPhase, PhasesOfARampHaveTheSamplesOfTheirSteps) {
  TrainingConfig training;
  training.micro_batch_size = 2;
  training.global_batch_size = 8;
  training.rampup_batch_size = {2, 2, 30};
  training.train_iters = 20;
  const NumMicrobatchesCalculator batches(training);
  std::vector<std::int64_t> consumed{0};  // after each iteration
  for (std::int64_t i = 0; i < training.train_iters; ++i)
    consumed.push_back(consumed.back() + batches.at(consumed.back()).global_batch_size);
  const std::vector<DataPhase> phases = divide_run(training, {11, 4});
  ASSERT_EQ(phases.size(), 3u);
  for (std::size_t i = 0; i < phases.size(); ++i) {
    EXPECT_EQ(phases[i].begin, (std::vector<std::int64_t>{0, 4, 11}[i]));
    EXPECT_EQ(phases[i].end, (std::vector<std::int64_t>{4, 11, 20}[i]));
    EXPECT_EQ(phases[i].num_samples, consumed[static_cast<std::size_t>(phases[i].end)] -
                                         consumed[static_cast<std::size_t>(phases[i].begin)]);
  }
  EXPECT_NE(phases[1].num_samples, 7 * 8);
}

/// A run with --train-iters has the phases of the run with as many samples: Megatron-LM divides
/// only runs with --train-samples.
TEST(DataPhase, IterationsCountLikeTheirSamples) {
  TrainingConfig by_samples;
  by_samples.micro_batch_size = 2;
  by_samples.global_batch_size = 6;
  by_samples.train_iters = 10;
  by_samples.train_samples = 60;
  by_samples.phase_transition_iterations = {3, 7};
  TrainingConfig by_iterations = by_samples;
  by_iterations.train_samples = 0;
  for (std::int64_t iteration = 0; iteration <= 10; ++iteration)
    EXPECT_EQ(data_phase(by_iterations, iteration), data_phase(by_samples, iteration)) << iteration;
  const DataPhase middle{.index = 1, .count = 3, .begin = 3, .end = 7, .num_samples = 24};
  EXPECT_EQ(data_phase(by_iterations, 3), middle);
  EXPECT_EQ(data_phase(by_iterations, 6), middle);
  EXPECT_EQ(data_phase(by_iterations, 10).begin, 7);
}

TEST(DataPhase, WithoutTransitionsTheRunIsOnePhase) {
  TrainingConfig training;
  training.micro_batch_size = training.global_batch_size = 4;
  training.train_iters = 5;
  EXPECT_EQ(data_phase(training, 3),
            (DataPhase{.index = 0, .count = 1, .begin = 0, .end = 5, .num_samples = 20}));
  EXPECT_FALSE(is_phase_transition(training, 0));
  EXPECT_EQ(consumed_samples_in_phase(training, 3, 11), 11);
}

TEST(PhaseTransitionRules, AnyOrderWithOneBatchSize) {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"--train-iters", "8", "--phase-transition-iterations"});
    return mistake(more);
  };
  EXPECT_EQ(with({"5,3"}), "no error");
  EXPECT_EQ(with({"5", "3"}), "no error");
  EXPECT_THAT(with({"0,4"}), HasSubstr("--phase-transition-iterations"));
  EXPECT_THAT(with({"four"}), HasSubstr("must be an integer, got 'four'"));
  EXPECT_THAT(
      with({"4", "--rampup-batch-size", "2", "2", "8", "--global-batch-size", "4"}),
      HasSubstr("excludes --rampup-batch-size: all phases of the data have one batch size"));
  EXPECT_THAT(with({"4", "--step-batch-size-schedule", "0:2"}),
              HasSubstr("excludes --step-batch-size-schedule"));
  EXPECT_THAT(with({"4", "--decrease-batch-size-if-needed"}),
              HasSubstr("excludes --decrease-batch-size-if-needed"));
}

}  // namespace
}  // namespace megatron
