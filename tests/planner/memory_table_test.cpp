#include "megatron/planner/memory_table.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr double kMegabyte = 1024 * 1024;

MemoryTable small_table() {
  return {.parameters = 10 * kMegabyte,
          .activations = 6 * kMegabyte,
          .libraries = 80 * kMegabyte,
          .peak = 97 * kMegabyte,
          .units = {{"embedding", "embedding", kMegabyte},
                    {"layer 0", "dense layer", 2 * kMegabyte},
                    {"layer 1", "dense layer", 3 * kMegabyte}}};
}

TEST(MemoryTable, ShowsWhatNothingExplains) {
  const MemoryTable table = small_table();
  EXPECT_EQ(table.explained(), 96 * kMegabyte);
  EXPECT_EQ(table.unexplained(), kMegabyte);
  const MemoryColumn column{"rank 0", &table};
  const std::string text = memory_text({&column, 1});
  EXPECT_THAT(text, testing::StartsWith("\n    parameters ....."));
  EXPECT_THAT(text, HasSubstr("      2 dense layers ...............................: 5.00\n"));
  EXPECT_THAT(text, HasSubstr("      embedding ....................................: 1.00\n"));
  EXPECT_THAT(text, HasSubstr("    unexplained ....................................: 1.00\n"));
  EXPECT_THAT(text, testing::EndsWith(": 97.00"));
  EXPECT_THAT(text, testing::Not(HasSubstr("columns")));
}

TEST(MemoryTable, ShowsSeveralRanksSideBySide) {
  MemoryTable larger = small_table();
  const MemoryTable table = small_table();
  larger.units.push_back({"layer 2", "dense layer", kMegabyte});
  const MemoryColumn columns[] = {{"rank 0", &table}, {"rank 3, the largest of 4", &larger}};
  const std::string text = memory_text(columns);
  EXPECT_THAT(text, HasSubstr("\n    columns: rank 0 | rank 3, the largest of 4\n"));
  EXPECT_THAT(
      text, HasSubstr("      dense layers .................................:         5.00         "
                      "6.00\n"));
}

TEST(MemoryTable, ShowsWhatIsOffloadedApartFromTheSum) {
  MemoryTable table = small_table();
  table.offloaded_state = {.now = 12 * kMegabyte,
                           .peak = 13 * kMegabyte,
                           .written = 14 * kMegabyte,
                           .read = 15 * kMegabyte};
  EXPECT_EQ(table.explained(), small_table().explained());
  const MemoryColumn column{"rank 0", &table};
  const std::string text = memory_text({&column, 1});
  EXPECT_THAT(text, HasSubstr(": 97.00\n    offloaded, no part of the sum:\n"));
  EXPECT_THAT(text, HasSubstr("      optimizer state, now ...................."));
  EXPECT_THAT(text, HasSubstr("      optimizer state, written in a step ......"));
  EXPECT_THAT(text, testing::EndsWith(": 15.00"));
  EXPECT_THAT(text, testing::Not(HasSubstr("activations, now")));
}

TEST(MemoryTable, PassesThroughJson) {
  MemoryTable table = small_table();
  table.offloaded_activations.read = 3;
  const MemoryTable read = memory_table_of(Json::parse(memory_json(table).dump()));
  EXPECT_EQ(memory_json(read).dump(), memory_json(table).dump());
  EXPECT_EQ(read.peak, table.peak);
  EXPECT_EQ(read.offloaded_activations.read, 3);
  ASSERT_EQ(read.units.size(), 3);
  EXPECT_EQ(read.units[2].name, "layer 1");
  EXPECT_EQ(read.units[2].bytes, 3 * kMegabyte);
}

}  // namespace
}  // namespace megatron
