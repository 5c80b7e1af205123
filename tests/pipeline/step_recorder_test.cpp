#include "megatron/pipeline/step_recorder.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

constexpr ScheduleStep kForward{StepKind::forward, 3, 0}, kBackward{StepKind::backward, 1, 0};
constexpr ScheduleStep kReceive{StepKind::recv_forward, 3, 0}, kSend{StepKind::send_forward, 3, 0};

TEST(StepRecorder, NotesWhatComputesWaitsAndIsSent) {
  StepRecorder recorder(c10::kCPU);
  const double start = monotonic_seconds();
  recorder.posted(kReceive);
  recorder.begin_wait(kReceive);
  recorder.end_wait(kReceive);
  recorder.begin(kForward);
  recorder.end(kForward);
  recorder.posted(kSend);
  const std::vector<TimedStep> steps = recorder.take();
  ASSERT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps[0].step, kReceive);
  EXPECT_EQ(steps[1].step, kForward);
  EXPECT_EQ(steps[2].step, kSend);
  EXPECT_LE(start, steps[0].posted_s.value());
  EXPECT_LE(*steps[0].posted_s, steps[0].span.begin_s);
  EXPECT_LE(steps[0].span.begin_s, steps[0].span.end_s);
  EXPECT_LE(steps[0].span.end_s, steps[1].span.begin_s);
  EXPECT_LE(steps[1].span.end_s, steps[2].span.begin_s);
  EXPECT_EQ(steps[2].span.begin_s, steps[2].span.end_s);
  EXPECT_FALSE(steps[1].posted_s);
}

TEST(StepRecorder, JoinedStepsNest) {
  StepRecorder recorder(c10::kCPU);
  recorder.begin(kForward);
  recorder.begin(kBackward);
  recorder.end(kBackward);
  recorder.end(kForward);
  const std::vector<TimedStep> steps = recorder.take();
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].step, kBackward);
  EXPECT_LE(steps[1].span.begin_s, steps[0].span.begin_s);
  EXPECT_LE(steps[0].span.end_s, steps[1].span.end_s);
}

TEST(StepRecorder, TakingForgetsWhatIsOpen) {
  StepRecorder recorder(c10::kCPU);
  recorder.posted(kReceive);
  recorder.begin(kForward);
  EXPECT_TRUE(recorder.take().empty());
  recorder.begin_wait(kReceive);
  recorder.end_wait(kReceive);
  const std::vector<TimedStep> steps = recorder.take();
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_FALSE(steps[0].posted_s) << "posted before";
  EXPECT_THROW(recorder.end(kForward), std::exception);
}

}  // namespace
}  // namespace megatron
