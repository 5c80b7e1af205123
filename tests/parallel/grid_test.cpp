// Compares the grid with its definition, and groups over it with hand-written ones.
#include "megatron/parallel/grid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "fake_communicators.h"
#include "megatron/base/error.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The example in the docstring of megatron-core's generate_masked_orthogonal_rank_groups, with
// sizes 2, 3, 4.
TEST(Grid, ExampleOfMegatronCore) {
  const Grid grid({2, 3, 4}, {"tp", "dp", "pp"});
  EXPECT_EQ(grid.num_ranks(), 24);
  const auto dp = grid.groups("dp");
  ASSERT_EQ(dp.size(), 8U);
  EXPECT_THAT(dp[0], ElementsAre(0, 2, 4));
  EXPECT_THAT(dp[1], ElementsAre(1, 3, 5));
  EXPECT_THAT(dp[7], ElementsAre(19, 21, 23));
  EXPECT_THAT(grid.group(21, "dp"), ElementsAre(19, 21, 23));
  EXPECT_EQ(grid.coordinate(21, "dp"), 1);
}

// The same docstring's example of 8 ranks in order tp-pp-dp with sizes 2, 2, 2.
TEST(Grid, FirstDimensionIsFastest) {
  const Grid grid({2, 2, 2}, {"tp", "pp", "dp"});
  EXPECT_THAT(grid.groups("dp"), ElementsAre(ElementsAre(0, 4), ElementsAre(1, 5),
                                             ElementsAre(2, 6), ElementsAre(3, 7)));
  EXPECT_THAT(grid.groups("dp-tp"), ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(2, 3, 6, 7)));
  EXPECT_THAT(grid.coordinates(6), ElementsAre(0, 1, 1));
}

TEST(Grid, StartsAtItsOffset) {
  const Grid grid({2, 2}, {"tp", "dp"}, 10);
  EXPECT_FALSE(grid.contains(9));
  EXPECT_TRUE(grid.contains(13));
  EXPECT_FALSE(grid.contains(14));
  EXPECT_THAT(grid.groups("dp"), ElementsAre(ElementsAre(10, 12), ElementsAre(11, 13)));
  EXPECT_EQ(grid.coordinate(13, "dp"), 1);
  EXPECT_THROW(grid.group(9, "dp"), InternalError);
}

TEST(Grid, MistakesAreNamed) {
  const Grid grid({2, 2}, {"tp", "dp"});
  EXPECT_THAT(message_of([&] { grid.size("pp"); }),
              HasSubstr("dimension 'pp': is not in the grid tp-dp"));
  EXPECT_THAT(message_of([&] { grid.size(""); }), HasSubstr("dimension '': is not in the grid"));
  EXPECT_THAT(message_of([&] { grid.size("tp-"); }), HasSubstr("dimension '': is not in the grid"));
  EXPECT_THAT(message_of([&] { grid.size("tp-tp"); }), HasSubstr("name tp twice"));
  EXPECT_THAT(message_of([] { Grid({2}, {"tp", "dp"}); }), HasSubstr("2 names for 1 sizes"));
  EXPECT_THAT(message_of([] { Grid({2, 0}, {"tp", "dp"}); }), HasSubstr("dp is 0"));
  EXPECT_THAT(message_of([] { Grid({2, 2}, {"tp", "tp"}); }), HasSubstr("two dimensions named tp"));
  EXPECT_THAT(message_of([] { Grid({2}, {"tp-dp"}); }), HasSubstr("use names without '-'"));
  EXPECT_THAT(message_of([] { Grid({2}, {"tp"}, -1); }), HasSubstr("starts at rank -1"));
  EXPECT_THAT(message_of([] {
                Grid({1'000'000'000, 1'000'000'000}, {"tp", "dp"});
              }),
              HasSubstr("has too many ranks"));
}

}  // namespace
}  // namespace megatron
