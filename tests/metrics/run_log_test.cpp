#include "megatron/metrics/report/run_log.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

class RunLogTest : public testing::Test {
 protected:
  RunLog read(const std::string& text) {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "metrics.jsonl", std::ios::binary) << text;
    return read_run_log(folder_);
  }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "run";
};

TEST_F(RunLogTest, SortsNumbersIntoSeries) {
  const RunLog log = read(
      "{\"iteration\":0,\"run\":{\"parameters\":7}}\n"
      "{\"iteration\":1,\"lm loss\":2.5,\"skipped\":false,\"note\":\"text\"}\n"
      "\n"
      "{\"iteration\":2,\"lm loss\":null,\"skipped\":true}\n"
      "{\"iteration\":2,\"split\":\"validation\",\"lm loss\":3}\n");
  EXPECT_EQ(log.lines, 4);
  EXPECT_EQ(log.unreadable_lines, 0);
  EXPECT_EQ(log.steps.at("lm loss").x, (std::vector<double>{1, 2}));
  EXPECT_TRUE(std::isnan(log.steps.at("lm loss").y[1]));
  EXPECT_EQ(log.steps.at("skipped").y, (std::vector<double>{0, 1}));
  EXPECT_FALSE(log.steps.contains("note"));
  EXPECT_EQ(log.evaluations.at("lm loss validation").y, std::vector<double>{3});
  EXPECT_EQ(log.start_iterations, std::vector<std::int64_t>{0});
}

TEST_F(RunLogTest, ATornOrGarbledLineCostsOnlyItself) {
  const RunLog log = read(
      "{\"iteration\":1,\"lm loss\":2}\n\xff\xfe "
      "garbage\n[1,2]\n{\"iteration\":\"two\"}\n{\"iteration\":3,\"lm "
      "loss\":1}\n{\"iteration\":4,\"lm");
  EXPECT_EQ(log.unreadable_lines, 4);
  EXPECT_EQ(log.steps.at("lm loss").x, (std::vector<double>{1, 3}));
  EXPECT_TRUE(log.first_unreadable.starts_with("line 2: ")) << log.first_unreadable;
}

TEST_F(RunLogTest, AFolderMayHoldTheMetricsInItsOnlyFolderWithSome) {
  read("{\"iteration\":1,\"lm loss\":2}\n");
  fs::create_directories(temporary_ / "iter_0000001");
  EXPECT_EQ(read_run_log(temporary_.path()).steps.at("lm loss").y, std::vector<double>{2});
  fs::create_directories(temporary_ / "other");
  fs::copy(folder_ / "metrics.jsonl", temporary_ / "other");
  EXPECT_THROW(read_run_log(temporary_.path()), UserError) << "two could be meant";
}

TEST_F(RunLogTest, TakesPythonsNotANumber) {
  const RunLog log = read(
      "{\"iteration\":1,\"lm loss\":NaN,\"say\":\"NaN \\\" "
      "NaN\",\"grad_norm\":-Infinity,\"lr\":1}\n");
  EXPECT_EQ(log.unreadable_lines, 0);
  EXPECT_TRUE(std::isnan(log.steps.at("lm loss").y[0]));
  EXPECT_EQ(log.steps.at("lr").y[0], 1);
}

TEST_F(RunLogTest, OfAnIterationWrittenTwiceTheLastStays) {
  const RunLog log = read(
      "{\"iteration\":1,\"a\":1}\n{\"iteration\":2,\"a\":2}\n{\"iteration\":3,\"a\":3}\n{"
      "\"iteration\":2,\"a\":20}\n");
  EXPECT_EQ(log.steps.at("a").x, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(log.steps.at("a").y, (std::vector<double>{1, 20, 3}));
}

TEST_F(RunLogTest, AMissingFileIsTheUsersMistake) {
  fs::create_directories(folder_);
  EXPECT_THROW(read_run_log(folder_), UserError);
  EXPECT_THROW(read_run_log(folder_ / "none"), UserError);
  EXPECT_EQ(read("").lines, 0);
}

/// Feeds random bytes, and valid lines that are cut, duplicated or altered. Only the damaged lines
/// may be lost.
TEST(RunLogFuzz, AnyBytesAreALineOrNone) {
  std::mt19937 random(7);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  const std::string good =
      "{\"iteration\":12,\"lm "
      "loss\":2.5,\"run\":{\"settings\":{\"lr\":\"1\"}},\"split\":\"test\",\"x\":[1,{\"y\":NaN}],"
      "\"z\":1e999}";
  for (int round = 0; round < 20000; ++round) {
    std::string line = good.substr(0, 1 + below(good.size()));
    if (round % 3 == 0) line += good.substr(below(good.size()));
    for (std::size_t changes = below(6); changes > 0; --changes)
      line[below(line.size())] = static_cast<char>(below(256));
    RunLog log;
    if (!read_metrics_line(line, log)) {
      EXPECT_TRUE(log.steps.empty() && log.evaluations.empty() && log.starts.empty()) << line;
    }
  }
  RunLog log;
  EXPECT_FALSE(read_metrics_line(std::string(100000, '['), log));
  EXPECT_FALSE(read_metrics_line("{\"iteration\":-1}", log));
  EXPECT_FALSE(read_metrics_line("{\"iteration\":99999999999999999999}", log));
}

}  // namespace
}  // namespace megatron
