// Compares batch sizes with Megatron Core's calculators (fixtures of
// tests/parity/make_batch_fixtures.py) and with values computed by hand.
#include "megatron/config/batch_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/config/evaluation_plan.h"
#include "megatron/config/training_config.h"

namespace megatron {
namespace {

using testing::HasSubstr;

TrainingConfig training_of(const Json& example) {
  TrainingConfig training;
  training.micro_batch_size = example.at("micro");
  training.seq_length = example.value("seq", std::int64_t{1});
  training.global_batch_size = example.value("size", std::int64_t{0});
  training.decrease_batch_size_if_needed = example.value("decrease", false);
  training.step_batch_size_schedule = example.value("steps", std::string());
  if (example.contains("ramp"))
    training.rampup_batch_size = example.at("ramp").get<std::vector<std::int64_t>>();
  return training;
}

TEST(NumMicrobatches, EqualsMegatronCore) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/config/fixtures/batch_schedules.json");
  std::size_t points = 0;
  for (const Json& example : fixture.at("cases")) {
    const NumMicrobatchesCalculator batches(training_of(example), example.at("dp"));
    for (const Json& point : example.at("points")) {
      const StepBatch expected{.global_batch_size = point[1],
                               .running_batch_size = point[2],
                               .num_microbatches = point[3]};
      EXPECT_EQ(batches.at(point[0]), expected)
          << training_of(example).step_batch_size_schedule << example.value("ramp", Json())
          << " at " << point[0];
      ++points;
    }
    for (const Json& run : example.at("iterations"))
      EXPECT_EQ(batches.iterations_for(run[0]), run[1]) << example.value("ramp", Json()) << run;
  }
  EXPECT_GT(points, 4000u);
}

/// samples_after() skips ranges of equal batch sizes. Its result must equal the sum over all steps.
TEST(NumMicrobatches, SamplesAfterIsTheSumOfTheSteps) {
  const Json fixture = read_json(MEGATRON_SOURCE_DIR "/tests/config/fixtures/batch_schedules.json");
  for (const Json& example : fixture.at("cases")) {
    const NumMicrobatchesCalculator batches(training_of(example), example.at("dp"));
    std::int64_t consumed = 0;
    for (std::int64_t iteration = 0; iteration <= 300; ++iteration) {
      EXPECT_EQ(batches.samples_after(iteration), consumed) << example.value("ramp", Json());
      consumed += batches.at(consumed).global_batch_size;
    }
  }
}

TEST(NumMicrobatches, IndivisibleSizesAheadAreFound) {
  TrainingConfig training;
  training.micro_batch_size = 4;
  training.seq_length = 1;
  training.step_batch_size_schedule = "0:2 10:4 20:8";
  const NumMicrobatchesCalculator batches(training);
  EXPECT_EQ(batches.indivisible_size(0), 2);
  EXPECT_EQ(batches.indivisible_size(10), std::nullopt);
  training.step_batch_size_schedule = "0:4 10:6 20:8";
  EXPECT_EQ(NumMicrobatchesCalculator(training).indivisible_size(0), 6);
}

TEST(BatchSizeSteps, MistakesNameTheEntry) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"", "is empty"},
      {"8", "'8' has no colon"},
      {"0:x", "'0:x' is no pair of numbers"},
      {"0:0", "'0:0': the batch size must be from 1"},
      {"-1:4", "below 0"},
      {"5:4", "starts at sample 5"},
      {"0:4 100:8 100:16", "two batch sizes from sample 100 on"},
      {"0:8 100:4", "falls from 8 to 4"},
      {"0:1 9e99:2", "too large"},
      {"0:1 K:2", "'K:2' is no pair of numbers"},
  };
  for (const auto& [text, expected] : table) {
    try {
      parse_batch_size_steps(text, 1);
      ADD_FAILURE() << "accepted: " << text;
    } catch (const UserError& error) {
      EXPECT_THAT(error.what(), HasSubstr(expected)) << text;
    }
  }
}

TEST(EvaluationPlan, CountsTheEvaluationsOfARun) {
  TrainingConfig training;
  training.micro_batch_size = 2;
  training.global_batch_size = 8;
  training.eval_iters = 3;
  training.eval_interval = 10;
  for (const std::int64_t first : {0, 1, 9, 10, 11, 25}) {
    training.start_eval_at_iter = first;
    const EvaluationPlan plan = evaluation_plan(training);
    std::int64_t count = 0;
    for (std::int64_t iteration = 0; iteration <= 60; ++iteration) {
      count += plan.is_due(iteration);
      EXPECT_EQ(plan.evaluations_until(iteration), count) << first << " " << iteration;
    }
    EXPECT_EQ(plan.num_samples(), 24);
    EXPECT_EQ(plan.num_microbatches(), 12);
  }
  training.eval_global_batch_size = 6;
  training.eval_micro_batch_size = 3;
  EXPECT_EQ(evaluation_plan(training).num_microbatches(), 6);
}

}  // namespace
}  // namespace megatron
