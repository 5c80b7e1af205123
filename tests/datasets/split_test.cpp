// The expected values were printed by megatron-core 0.15 and numpy.
#include "megatron/datasets/split.h"

#include <gtest/gtest.h>

#include "datasets/corpus.h"
#include "support/message_of.h"

namespace megatron {
namespace {

TEST(Split, ParsesAsMegatronCore) {
  const SplitMatrix usual = parse_split("969, 30, 1");
  EXPECT_EQ(usual[0], std::make_pair(0.0, 0.969));
  EXPECT_EQ(usual[1], std::make_pair(0.969, 0.999));
  EXPECT_EQ(usual[2], std::make_pair(0.999, 1.0));
  const SplitMatrix thirds = parse_split("1,1,1");
  EXPECT_EQ(thirds[1], std::make_pair(0.3333333333333333, 0.6666666666666666));
  const SplitMatrix two = parse_split("90 10");
  EXPECT_EQ(two[1], std::make_pair(0.9, 1.0));
  EXPECT_FALSE(two[2]);
  EXPECT_EQ(parse_split(".5,.25")[0], std::make_pair(0.0, 0.6666666666666666));
  EXPECT_FALSE(parse_split("0,1,0")[0]);
}

TEST(Split, RoundsHalfToEven) {
  EXPECT_EQ(split_range({0.0, 0.5}, 5), (std::pair<std::int64_t, std::int64_t>(0, 2)));
  EXPECT_EQ(split_range({0.5, 1.0}, 7), (std::pair<std::int64_t, std::int64_t>(4, 7)));
}

TEST(Split, RefusesNonsense) {
  for (const char* text : {"", "0,0,0", "1,2,3,4", "1.2.3", "-1,2", "a,b", "."}) {
    const std::string error = message_of([&] { parse_split(text); });
    EXPECT_NE(error.find("--split"), std::string::npos) << text;
  }
}

TEST(Normalize, SumsInNumpysOrder) {
  EXPECT_EQ(normalize({3, 7})[0], 0.3);
  EXPECT_EQ(normalize(std::vector<double>(100, 0.1))[0], 0.1 / 9.999999999999998);
  EXPECT_EQ(normalize(std::vector<double>(300, 0.1))[0], 0.1 / 29.999999999999996);
  std::vector<double> harmonic;
  for (int i = 0; i < 300; ++i) harmonic.push_back(1.0 / (i + 1));
  EXPECT_EQ(normalize(harmonic)[0], 1.0 / 6.282663880299504);
}

}  // namespace
}  // namespace megatron
