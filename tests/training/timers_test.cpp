#include "megatron/training/observability/timers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using testing::MatchesRegex;

constexpr std::array<std::string_view, 2> kNames{"forward-backward", "optimizer"};

void run_both(Timers& timers) {
  const auto coarse = timers.scope("forward-backward", 1);
  const auto fine = timers.scope("optimizer", 2);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

TEST(Timers, ReportHasMegatronsFormatAndResets) {
  Timers timers(1, TimerStatistic::minmax);
  run_both(timers);
  EXPECT_THAT(timers.report(kNames),
              MatchesRegex("\\(min, max\\) time across ranks \\(ms\\):\n    forward-backward "
                           "\\.{31}: \\([0-9]+\\.[0-9]{2}, [0-9]+\\.[0-9]{2}\\)"));
  EXPECT_EQ(timers.report(kNames), "");
}

TEST(Timers, OtherStatistics) {
  Timers max(1, TimerStatistic::max), all(1, TimerStatistic::all);
  run_both(max);
  run_both(all);
  EXPECT_THAT(
      max.report(kNames),
      MatchesRegex(
          "max time across ranks \\(ms\\):\n    forward-backward \\.{31}: [0-9]+\\.[0-9]{2}"));
  EXPECT_THAT(
      all.report(kNames),
      MatchesRegex(
          "times across ranks \\(ms\\):\n  forward-backward:\n     rank  0: [0-9]+\\.[0-9]{2}"));
}

TEST(Timers, StatisticsAreOverTheRanks) {
  const auto report = [](TimerStatistic statistic) {
    Timers timers(1, statistic);
    timers.set_gather([](const std::vector<double>& mine) {
      EXPECT_EQ(mine.size(), kNames.size());
      return std::vector<std::vector<double>>{{3, 0}, {7, 0}, {5, 0}};
    });
    return timers.report(kNames);
  };
  const std::string title = "    forward-backward " + std::string(31, '.') + ": ";
  EXPECT_EQ(report(TimerStatistic::minmax),
            "(min, max) time across ranks (ms):\n" + title + "(3.00, 7.00)");
  EXPECT_EQ(report(TimerStatistic::max), "max time across ranks (ms):\n" + title + "7.00");
  EXPECT_EQ(report(TimerStatistic::all),
            "times across ranks (ms):\n  forward-backward:\n     rank  0: 3.00\n     rank  1: "
            "7.00\n     rank  2: 5.00");
}

TEST(Timers, TimersAboveTheLevelDoNothing) {
  Timers timers(0, TimerStatistic::minmax);
  run_both(timers);
  EXPECT_EQ(timers.report(kNames), "");
}

TEST(Timers, UnknownStatisticIsTheUsersMistake) {
  EXPECT_THROW(timer_statistic("mean"), UserError);
}

}  // namespace
}  // namespace megatron
