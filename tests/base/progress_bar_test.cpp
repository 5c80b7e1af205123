#include "megatron/base/progress_bar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(ProgressBar, ShowsShareSpeedAndRemainingTime) {
  const ProgressBarOptions options{
      .title = "train", .total = 100, .start = 0, .unit = "steps", .enabled = true};
  EXPECT_EQ(progress_bar_line(options, 50, 10.0, "loss 2.5", 200),
            "train  50% [############            ] 50/100 steps  5.0/s  remaining 0:10  loss 2.5");
  EXPECT_EQ(progress_bar_line(options, 0, 10.0, "", 200),
            "train  0% [                        ] 0/100 steps");
  EXPECT_EQ(progress_bar_line(options, 100, 10.0, "", 200).substr(0, 37),
            "train  100% [########################");
}

TEST(ProgressBar, CountsSpeedFromTheStart) {
  const ProgressBarOptions options{
      .title = "train", .total = 100, .start = 80, .unit = "", .enabled = true};
  EXPECT_THAT(progress_bar_line(options, 90, 10.0, "", 200),
              ::testing::HasSubstr("90/100  1.0/s  remaining 0:10"));
}

TEST(ProgressBar, UnknownTotalAndNarrowTerminal) {
  const ProgressBarOptions options{
      .title = "read", .total = 0, .start = 0, .unit = "lines", .enabled = true};
  EXPECT_EQ(progress_bar_line(options, 2000000, 10.0, "", 200), "read  2000000 lines  200k/s");
  EXPECT_EQ(progress_bar_line(options, 7, 1.0, "", 6), "read  ");
  EXPECT_EQ(progress_bar_line(options, 7, 1.0, "", -1), "");
}

TEST(ProgressBar, WritesDurations) {
  EXPECT_EQ(duration_text(8.4), "0:08");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(86400 * 3 + 4 * 3600 + 5 * 60), "3 d 04:05");
  EXPECT_EQ(duration_text(-1), "unknown");
  EXPECT_EQ(duration_text(1e300), "unknown");
}

TEST(ProgressBar, IsSilentWithoutATerminal) {
  ::testing::internal::CaptureStderr();
  {
    ProgressBar progress({.title = "quiet", .total = 3, .enabled = false});
    progress.update(1);
    progress.clear();
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(ProgressBar, DrawsSeldomAndCleansUp) {
  ::testing::internal::CaptureStderr();
  {
    ProgressBar progress({.title = "busy", .total = 1000, .enabled = true});
    for (int i = 1; i <= 1000; ++i) progress.update(i);
  }
  const std::string written = ::testing::internal::GetCapturedStderr();
  EXPECT_LT(written.size(), 2000u);
  EXPECT_TRUE(written.starts_with("\r\033[Kbusy"));
  EXPECT_TRUE(written.ends_with("\r\033[K"));
}

}  // namespace
}  // namespace megatron
