#include "megatron/training/observability/interval_log.h"

#include <gtest/gtest.h>

#include <limits>

namespace megatron {
namespace {

/// A step over 4 tokens.
TrainStepResult step(double loss, bool applied) {
  TrainStepResult result{.losses = {{"lm loss", 4 * loss, 4}}, .update = {}};
  result.update.applied = applied;
  return result;
}

IterationReport report_of(const IntervalLog& log, double elapsed_s) {
  IterationReport report;
  log.fill(report, elapsed_s);
  return report;
}

// Megatron's training_log: losses are averaged over advanced_iters, times over all iterations.
TEST(IntervalLog, LeavesSkippedStepsOutOfTheLossAndCountsTheirTime) {
  IntervalLog log;
  log.add(step(4, true), 8);
  log.add(step(2, true), 8);
  log.add(step(100, false), 8);
  log.add(step(std::numeric_limits<double>::infinity(), false), 8);
  EXPECT_EQ(log.iterations(), 4);
  EXPECT_EQ(log.work(2).tokens, 16);
  EXPECT_EQ(log.work(2).seconds, 2);
  EXPECT_EQ(log.work(2).samples, 32);
  EXPECT_EQ(log.work(2).squared_samples, 32);
  const IterationReport report = report_of(log, /*elapsed_s=*/2);
  EXPECT_EQ(report.step.losses, (NamedLosses{{"lm loss", 3.0}}));
  EXPECT_EQ(report.step.elapsed_s, 0.5);
  EXPECT_EQ(report.skipped_iterations, 2);
  EXPECT_EQ(report.nan_iterations, 1);
}

TEST(IntervalLog, CountsWhatIsComputedOfPaddedSamples) {
  IntervalLog log;
  TrainStepResult padded = step(2, true);
  padded.computed_samples = {1.5, 1.125};
  log.add(padded, 3);
  log.add(step(2, true), 3);
  EXPECT_EQ(log.work(1).samples, 4.5);
  EXPECT_EQ(log.work(1).squared_samples, 4.125);
}

TEST(IntervalLog, AveragesEveryLossInItsOrder) {
  IntervalLog log;
  for (const double second : {1.0, 3.0}) {
    TrainStepResult result = step(2, true);
    result.losses.push_back({.name = "sop loss", .sum = 2 * second, .count = 2});
    log.add(result, 8);
  }
  EXPECT_EQ(report_of(log, 1).step.losses, (NamedLosses{{"lm loss", 2.0}, {"sop loss", 2.0}}));
}

TEST(IntervalLog, HasNoLossWhenEveryStepWasSkipped) {
  IntervalLog log;
  log.add(step(100, false), 8);
  const IterationReport report = report_of(log, 1);
  EXPECT_TRUE(report.step.losses.empty());
  EXPECT_EQ(report.step.elapsed_s, 1);
  EXPECT_EQ(report.skipped_iterations, 1);
  EXPECT_EQ(report.nan_iterations, 0);
}

TEST(IntervalLog, StartsAgainAfterAReset) {
  IntervalLog log;
  log.add(step(4, true), 8);
  log.reset();
  log.add(step(2, true), 8);
  EXPECT_EQ(report_of(log, 1).step.losses, (NamedLosses{{"lm loss", 2.0}}));
  EXPECT_EQ(log.iterations(), 1);
}

}  // namespace
}  // namespace megatron
