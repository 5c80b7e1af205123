#include "megatron/metrics/metrics_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/files.h"

namespace megatron {
namespace {

class MetricsWriterTest : public testing::Test {
 protected:
  fs::path folder_ = fs::temp_directory_path() / ("metrics_writer_test." + std::to_string(getpid()));
  void TearDown() override { fs::remove_all(folder_); }
  std::string text() const { return read_file(folder_ / "metrics.jsonl"); }
};

TEST_F(MetricsWriterTest, ResumedRunDropsLinesPastItsIterationAndTornOnes) {
  {
    MetricsWriter writer(folder_, 0);
    for (int i = 1; i <= 4; ++i) writer.write({{"iteration", i}, {"lm loss", 0.5 * i}});
  }
  std::ofstream(folder_ / "metrics.jsonl", std::ios::app) << "{\"iteration\":2,\"lm lo";
  MetricsWriter writer(folder_, 2);
  writer.write({{"iteration", 3}, {"lm loss", 9.0}});
  EXPECT_EQ(text(), "{\"iteration\":1,\"lm loss\":0.5}\n{\"iteration\":2,\"lm loss\":1.0}\n{\"iteration\":3,\"lm loss\":9.0}\n");
}

TEST_F(MetricsWriterTest, FreshRunStartsAnEmptyFile) {
  MetricsWriter(folder_, 0).write({{"iteration", 1}});
  MetricsWriter writer(folder_, 0);
  EXPECT_EQ(text(), "");
}

TEST_F(MetricsWriterTest, FolderThatCannotBeMadeIsTheUsersMistake) { EXPECT_THROW(MetricsWriter("/dev/null/metrics", 0), UserError); }

}  // namespace
}  // namespace megatron
