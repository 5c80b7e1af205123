#include "megatron/training/observability/stragglers/part_clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

/// A clock that the test sets, beside timers that it runs.
class PartClockTest : public testing::Test {
 protected:
  PartClockTest() { timers_.add_listener(clock_); }
  void compute(double seconds) { now_s_ += seconds; }
  void wait(double seconds) {
    now_s_ += seconds;
    waited_s_ += seconds;
  }

  double now_s_ = 1000, waited_s_ = 50;
  Timers timers_{0, TimerStatistic::minmax};
  PartClock clock_{{.now = [this] { return now_s_; }, .waited = [this] { return waited_s_; }}};
};

TEST_F(PartClockTest, OwnTimeIsTimeLessWaits) {
  {
    const auto data = timers_.scope("batch-generator", 2);
    compute(1);
  }
  {
    const auto both = timers_.scope("forward-backward", 1);
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      const auto forward = timers_.scope("forward-compute", 2);
      compute(2);
      wait(7);
    }
    wait(11);
    const auto backward = timers_.scope("backward-compute", 2);
    compute(4);
    wait(0.5);
    compute(4);
  }
  {
    const auto optimizer = timers_.scope("optimizer", 1);
    const auto inner = timers_.scope("optimizer-inner-step", 1);
    compute(3);
  }
  compute(0.25);
  const OwnTimes times = clock_.take_step();
  EXPECT_DOUBLE_EQ(times.own(StepPart::data), 1);
  EXPECT_DOUBLE_EQ(times.own(StepPart::forward), 4);
  EXPECT_DOUBLE_EQ(times.own(StepPart::backward), 8);
  EXPECT_DOUBLE_EQ(times.own(StepPart::optimizer), 3);
  EXPECT_DOUBLE_EQ(times.own(StepPart::other), 0.25);
  EXPECT_DOUBLE_EQ(times.waited_s, 25.5);
}

TEST_F(PartClockTest, EachStepStartsAtZero) {
  {
    const auto forward = timers_.scope("forward-compute", 2);
    compute(2);
  }
  wait(1);
  clock_.take_step();
  compute(5);
  const OwnTimes times = clock_.take_step();
  EXPECT_DOUBLE_EQ(times.own(StepPart::forward), 0);
  EXPECT_DOUBLE_EQ(times.own(StepPart::other), 5);
  EXPECT_DOUBLE_EQ(times.waited_s, 0);
}

TEST_F(PartClockTest, SavesAndEvaluationsArePartsOfTheirOwn) {
  {
    const auto save = timers_.scope("save-checkpoint");
    compute(2);
  }
  {
    const auto save = timers_.scope("save-checkpoint-non-persistent");
    compute(3);
  }
  {
    const auto evaluation = timers_.scope("evaluate");
    const auto data = timers_.scope("batch-generator", 2);
    compute(4);
  }
  const OwnTimes times = clock_.take_step();
  EXPECT_DOUBLE_EQ(times.own(StepPart::checkpoint), 5);
  EXPECT_DOUBLE_EQ(times.own(StepPart::evaluation), 4) << "a part within counts as the outer one";
  EXPECT_DOUBLE_EQ(times.own(StepPart::data), 0);
  EXPECT_DOUBLE_EQ(times.own(StepPart::other), 0);
}

TEST_F(PartClockTest, JoinedStepsCountAsTheFirst) {
  {
    const auto forward = timers_.scope("forward-compute", 2);
    compute(1);
    {
      const auto backward = timers_.scope("backward-compute", 2);
      compute(2);
    }
    compute(4);
  }
  const OwnTimes times = clock_.take_step();
  EXPECT_DOUBLE_EQ(times.own(StepPart::forward), 7);
  EXPECT_DOUBLE_EQ(times.own(StepPart::backward), 0);
}

}  // namespace
}  // namespace megatron
