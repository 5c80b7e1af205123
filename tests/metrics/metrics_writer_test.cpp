#include "megatron/metrics/metrics_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

class MetricsWriterTest : public testing::Test {
 protected:
  std::string text() const { return read_file(folder_ / "metrics.jsonl"); }

  const TemporaryFolder temporary_;
  const fs::path folder_ = temporary_ / "run";
};

TEST_F(MetricsWriterTest, ResumedRunDropsLinesPastItsIterationAndTornOnes) {
  {
    MetricsWriter writer(folder_, 0);
    for (int i = 1; i <= 4; ++i) writer.write({{"iteration", i}, {"lm loss", 0.5 * i}});
  }
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"iteration\":2,\"lm lo";
  MetricsWriter writer(folder_, 2);
  writer.write({{"iteration", 3}, {"lm loss", 9.0}});
  EXPECT_EQ(text(),
            "{\"iteration\":1,\"lm loss\":0.5}\n{\"iteration\":2,\"lm "
            "loss\":1.0}\n{\"iteration\":3,\"lm loss\":9.0}\n");
}

TEST_F(MetricsWriterTest, FreshRunStartsAnEmptyFile) {
  MetricsWriter(folder_, 0).write({{"iteration", 1}});
  MetricsWriter writer(folder_, 0);
  EXPECT_EQ(text(), "");
}

TEST_F(MetricsWriterTest, LinesOfAnotherRunAreKeptAside) {
  const auto write_run = [&](int iterations) {
    MetricsWriter writer(folder_, 0, ExistingMetrics::other_run);
    writer.write({{"iteration", 0}, {"run", "record"}});
    for (int i = 1; i <= iterations; ++i) writer.write({{"iteration", i}});
    return writer.backup_path();
  };
  EXPECT_EQ(write_run(2), "");
  const std::string first = text();
  EXPECT_EQ(write_run(0), folder_ / "metrics-1.jsonl");
  EXPECT_EQ(read_file(folder_ / "metrics-1.jsonl"), first);
  EXPECT_EQ(write_run(1), "") << "a record alone is nothing to keep";
  EXPECT_EQ(write_run(1), folder_ / "metrics-2.jsonl");

  const MetricsWriter fork(folder_, 1, ExistingMetrics::other_run);
  EXPECT_EQ(fork.backup_path(), "") << "nothing lies past iteration 1";
}

TEST_F(MetricsWriterTest, AFolderThatVanishesIsMadeAgain) {
  MetricsWriter writer(folder_, 0);
  writer.write({{"iteration", 0}, {"run", "record"}});
  writer.write({{"iteration", 1}});
  fs::remove_all(folder_);
  testing::internal::CaptureStderr();
  writer.write({{"iteration", 2}});
  writer.write({{"iteration", 3}});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_EQ(text(), "{\"iteration\":0,\"run\":\"record\"}\n{\"iteration\":2}\n{\"iteration\":3}\n");
  EXPECT_NE(warnings.find("metrics.jsonl was deleted during the run"), std::string::npos);
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1);
}

/// Creates a link to itself, which behaves like a network file system that does not answer.
TEST_F(MetricsWriterTest, AFolderThatCannotBeLookedAtIsNotMadeAgain) {
  const fs::path aside = folder_.string() + ".aside";
  MetricsWriter writer(folder_, 0);
  writer.write({{"iteration", 0}, {"run", "record"}});
  fs::rename(folder_, aside);
  fs::create_symlink(folder_, folder_);
  testing::internal::CaptureStderr();
  writer.write({{"iteration", 1}});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  fs::remove(folder_);
  fs::rename(aside, folder_);
  EXPECT_EQ(text(), "{\"iteration\":0,\"run\":\"record\"}\n{\"iteration\":1}\n");
}

TEST_F(MetricsWriterTest, FolderThatCannotBeMadeIsTheUsersMistake) {
  EXPECT_THROW(MetricsWriter("/dev/null/metrics", 0), UserError);
}

}  // namespace
}  // namespace megatron
