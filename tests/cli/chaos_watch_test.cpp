// What came of each fault, decided from lines of a run that is not started.
#include "megatron/cli/chaos_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

using testing::SizeIs;

TEST(LoggedStep, HasTheFirstLossWhateverItsName) {
  const auto step = logged_step(
      " [now] iteration 3/ 9 | pair loss: 6.9E-01 | sop loss: 1.0 | loss scale: 1.0 | grad norm: 2 "
      "|");
  ASSERT_TRUE(step);
  EXPECT_EQ(step->loss, "6.9E-01");
  EXPECT_EQ(step->grad_norm, "2");
}

/// A run whose steps take one second each.
class WatchedRun {
 public:
  explicit WatchedRun(const std::vector<Fault>& faults) : watch_(faults, Time()) {}

  ChaosWatch& watch() { return watch_; }
  void pass(double seconds) {
    now_ += std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(seconds));
  }
  void step(int iteration, const std::string& loss = "1.5") {
    pass(1);
    EXPECT_TRUE(watch_.take(" [2026-01-01 12:00:00] iteration " + std::to_string(iteration) +
                                "/ 9 | lm loss: " + loss + " | grad norm: 1.0 |",
                            now_));
  }
  void restart() { EXPECT_FALSE(watch_.take("megatron launch: restart 1 of 3", now_)); }
  void fail_to_save() {
    EXPECT_FALSE(watch_.take("WARNING: saving iteration 2 failed: disk full", now_));
  }
  void begin_fault(bool lasts = false) {
    ASSERT_NE(watch_.due_fault(now_), nullptr);
    watch_.begin_fault(now_, lasts);
  }
  /// Ends the run and returns what came of its first fault.
  FaultOutcome finish(int code = 0) { return watch_.finish(code, now_).faults.front(); }

 private:
  using Time = ChaosWatch::Time;
  Time now_ = {};
  ChaosWatch watch_;
};

TEST(ChaosWatch, AFaultIsDueAPartOfAStepAfterItsStep) {
  WatchedRun run({{.kind = FaultKind::kill, .iteration = 2, .step_part = 0.5}});
  run.step(1);
  EXPECT_EQ(run.watch().due_fault({}), nullptr);
  run.step(2);
  const ChaosWatch::Time second = run.watch().last_step();
  EXPECT_EQ(run.watch().due_fault(second), nullptr);
  EXPECT_NE(run.watch().due_fault(second + std::chrono::milliseconds(500)), nullptr);
}

TEST(ChaosWatch, AKillIsOverWithTheFirstStepAfterTheRestart) {
  WatchedRun run({{.kind = FaultKind::kill, .iteration = 2}});
  run.step(1);
  run.step(2);
  run.begin_fault();
  run.step(3);  // printed before the rank died
  run.restart();
  run.step(3);
  const FaultOutcome outcome = run.finish();
  EXPECT_TRUE(outcome.has_happened);
  EXPECT_EQ(outcome.recovery_s, 2.0);
  EXPECT_EQ(outcome.repeated_steps, 1);
  EXPECT_FALSE(outcome.is_unnoticed);
}

TEST(ChaosWatch, ABitFlipMustBeFollowedByARestart) {
  for (const FaultKind kind : {FaultKind::bit_flip, FaultKind::stop}) {
    WatchedRun run({{.kind = kind, .iteration = 1}});
    run.step(1);
    run.begin_fault();
    run.step(2);
    run.step(3);
    const FaultOutcome outcome = run.finish();
    EXPECT_TRUE(outcome.has_happened);
    EXPECT_FALSE(outcome.recovery_s);
    EXPECT_TRUE(outcome.is_unnoticed);
  }
}

TEST(ChaosWatch, StepsBetweenABitFlipAndTheRestartMayBeWrong) {
  WatchedRun run({{.kind = FaultKind::bit_flip, .iteration = 1}});
  run.step(1);
  run.begin_fault();
  run.step(2, "9.5");
  run.restart();
  run.step(2, "1.5");
  const ChaosOutcome outcome = run.watch().finish(0, {});
  ASSERT_THAT(outcome.steps.at(2), SizeIs(2));
  EXPECT_TRUE(outcome.steps.at(2)[0].may_be_wrong);
  EXPECT_FALSE(outcome.steps.at(2)[1].may_be_wrong);
  EXPECT_FALSE(outcome.faults[0].is_unnoticed);
}

TEST(ChaosWatch, AFaultAfterTheLastStepFindsNothingToBreak) {
  WatchedRun run({{.kind = FaultKind::bit_flip, .iteration = 1}});
  run.step(1);
  run.begin_fault();
  const FaultOutcome outcome = run.finish();
  EXPECT_FALSE(outcome.has_happened);
  EXPECT_FALSE(outcome.is_unnoticed);
}

TEST(ChaosWatch, ARestartAfterTheLastStepIsARecovery) {
  WatchedRun run({{.kind = FaultKind::kill, .iteration = 1}});
  run.step(1);
  run.begin_fault();
  run.restart();
  run.pass(3);
  EXPECT_EQ(run.finish().recovery_s, 3.0);
}

TEST(ChaosWatch, AFullDiskThatNoSaveHasMetDidNotHappen) {
  WatchedRun run(
      {{.kind = FaultKind::full_disk, .iteration = 1}, {.kind = FaultKind::pause, .iteration = 2}});
  run.step(1);
  run.begin_fault(/*lasts=*/true);
  run.step(2);
  run.watch().end_fault();
  run.begin_fault(/*lasts=*/true);
  run.watch().end_fault();
  run.step(3);
  const ChaosOutcome outcome = run.watch().finish(0, {});
  EXPECT_FALSE(outcome.faults[0].has_happened);
  EXPECT_TRUE(outcome.faults[1].has_happened) << "the next one does not wait for it";
}

TEST(ChaosWatch, AFullDiskThatLastsToTheEndWithoutASaveDidNotHappen) {
  WatchedRun run({{.kind = FaultKind::full_disk, .iteration = 1}});
  run.step(1);
  run.begin_fault(/*lasts=*/true);
  run.step(2);
  EXPECT_FALSE(run.finish().has_happened);
}

TEST(ChaosWatch, AFullDiskHasHappenedWhenASaveHasFailed) {
  WatchedRun run({{.kind = FaultKind::full_disk, .iteration = 1}});
  run.step(1);
  run.begin_fault(/*lasts=*/true);
  run.step(2);
  run.fail_to_save();
  run.watch().end_fault();
  run.step(3);
  const FaultOutcome outcome = run.finish();
  EXPECT_TRUE(outcome.has_happened);
  EXPECT_EQ(outcome.recovery_s, 2.0);
}

TEST(ChaosWatch, AFaultThatFindsNothingToBreakIsGivenUp) {
  WatchedRun run({{.kind = FaultKind::drop_link, .iteration = 1}});
  int num_tries = 0;
  for (int i = 1; i <= 9; ++i) {
    run.step(i);
    if (run.watch().due_fault(run.watch().last_step()) == nullptr) continue;
    ++num_tries;
    run.watch().postpone_fault();
  }
  EXPECT_EQ(num_tries, 7) << "in the first step and six more";
  EXPECT_FALSE(run.finish().has_happened);
}

}  // namespace
}  // namespace megatron
