// Reads rows.parquet, which pyarrow wrote, through lib/libmegatron_arrow.so. `make build ARROW=1`
// builds that plugin; without it the tests say that they are skipped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/files.h"
#include "megatron/datasets/parquet/parquet_stream.h"
#include "support/temporary_folder.h"

namespace megatron {
namespace {

class Parquet : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!fs::exists(MEGATRON_BINARY_DIR "/lib/libmegatron_arrow.so"))
      GTEST_SKIP() << "there is no lib/libmegatron_arrow.so: make build ARROW=1 builds it";
  }
  const std::string file_ = MEGATRON_SOURCE_DIR "/tests/datasets/fixtures/rows.parquet";
};

/// Reads a few bytes at a time, so that lines are cut.
std::string read_all(TextStream& stream) {
  std::string text, buffer(7, '\0');
  while (const std::size_t count = stream.read(buffer.data(), buffer.size()))
    text.append(buffer, 0, count);
  return text;
}

TEST_F(Parquet, RowsOfAllGroupsAreLinesOfJson) {
  const auto stream = open_parquet(file_, {"text", "parts"});
  std::istringstream lines(read_all(*stream));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(nlohmann::json::parse(line));
  using Parts = nlohmann::json::array_t;
  const std::vector<nlohmann::json> expected = {
      {{"text", "plain"}, {"parts", Parts{"a", "b"}}},
      {{"text", "quote \" and \\"}, {"parts", Parts()}},
      {{"text", "line\nbreak\tand \x01"}, {"parts", Parts{"c"}}},
      {{"text", "\u6771\u4eac \u00e9"}, {"parts", nullptr}},
      {{"text", ""}, {"parts", Parts{"x"}}}};
  EXPECT_EQ(rows, expected);
  EXPECT_EQ(stream->bytes_read(), fs::file_size(file_));
}

TEST_F(Parquet, AnAbsentColumnIsNamedWithThoseThereAre) {
  try {
    open_parquet(file_, {"title"});
    FAIL() << "no error";
  } catch (const UserError& error) {
    EXPECT_NE(error.parts().what.find("no column 'title'; there are number, text, parts"),
              std::string::npos)
        << error.what();
  }
}

TEST_F(Parquet, ACutFileIsAnErrorAtEveryLength) {
  const TemporaryFolder folder;
  const std::string whole = read_file(file_);
  for (std::size_t size = 0; size < whole.size(); size += 13) {
    const std::string path = folder.write("cut.parquet", std::string_view(whole).substr(0, size));
    EXPECT_THROW(read_all(*open_parquet(path, {"text"})), UserError) << size << " bytes";
  }
}

}  // namespace
}  // namespace megatron
