#include "megatron/parallel/object_collectives.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Numbers = std::vector<double>;
using Integers = std::vector<std::int64_t>;
using Texts = std::vector<std::string>;

TEST(ObjectCollectives, AreTheIdentityOnOneRank) {
  const Axis axis;
  EXPECT_EQ(all_reduce_max({axis}, {1, 2}, "x"), (Numbers{1, 2}));
  EXPECT_EQ(all_reduce_sum({axis}, {1, 2}, "x"), (Numbers{1, 2}));
  EXPECT_EQ(broadcast_numbers({axis}, {1, 2}, "x"), (Numbers{1, 2}));
  EXPECT_THAT(all_gather_numbers({axis}, Numbers{1, 2}, "x"), ElementsAre(Numbers{1, 2}));
  EXPECT_THAT(all_gather_strings({axis}, "a"), ElementsAre("a"));
  EXPECT_THAT(broadcast_strings({axis}, {"a", "b"}), ElementsAre("a", "b"));
  EXPECT_THAT(all_gather_unique_names({axis}, {"b", "a", "b"}), ElementsAre("a", "b"));
}

TEST(ObjectCollectives, CombineTheObjectsOfAllRanks) {
  run_rank_threads(3, [](Communicators& world) {
    const std::int64_t rank = world.rank();
    const Axis axis{
        .name = "dp", .rank = rank, .size = 3, .comm = world.group(first_ranks(3), "dp")};
    const ObjectGroup group{axis};
    const double number = static_cast<double>(rank) / 3;
    EXPECT_EQ(all_reduce_max(group, {number, -number}, "x"), (Numbers{2.0 / 3, 0}));
    EXPECT_EQ(all_reduce_sum(group, {1, -number}, "x"), (Numbers{3, -1}));
    EXPECT_EQ(broadcast_numbers(group, {number + 5, number}, "x"), (Numbers{5, 0}));
    EXPECT_THAT(all_gather_numbers(group, Numbers{number, 7}, "x"),
                ElementsAre(Numbers{0, 7}, Numbers{1.0 / 3, 7}, Numbers{2.0 / 3, 7}));
    // A double does not hold these integers.
    const std::int64_t large = std::numeric_limits<std::int64_t>::max() - rank;
    EXPECT_THAT(all_gather_numbers(group, Integers{large}, "x"),
                ElementsAre(Integers{large + rank}, Integers{large + rank - 1},
                            Integers{large + rank - 2}));
    EXPECT_THAT(all_gather_numbers(group, Numbers{}, "x"),
                ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  });
}

/// One rank has a long text, as rank 0 has when it tells of a checkpoint.
TEST(ObjectCollectives, SendNoPadding) {
  run_rank_threads(3, [](Communicators& world) {
    const Axis axis{
        .name = "dp", .rank = world.rank(), .size = 3, .comm = world.group(first_ranks(3), "dp")};
    const std::string text(world.rank() == 0 ? 100'000 : 1, 'x');
    EXPECT_EQ(all_gather_strings({axis}, text)[0].size(), 100'000U);
    std::int64_t bytes = 0;
    for (const CommCount& row : world.counters().take()) bytes += row.bytes;
    EXPECT_EQ(bytes, 100'002 + 3 * 8) << "the texts and their sizes";
  });
}

TEST(ObjectCollectives, CarryTextsOfAnyLength) {
  run_rank_threads(3, [](Communicators& world) {
    const std::int64_t rank = world.rank();
    const Axis axis{
        .name = "dp", .rank = rank, .size = 3, .comm = world.group(first_ranks(3), "dp")};
    const Texts texts{"", std::string("a\0:\n", 4), std::string(1000, 'x')};
    EXPECT_EQ(all_gather_strings({axis}, texts[static_cast<std::size_t>(rank)]), texts);
    EXPECT_THAT(all_gather_strings({axis}, ""), ElementsAre("", "", ""));
    EXPECT_EQ(gather_strings({axis}, texts[static_cast<std::size_t>(rank)]),
              rank == 0 ? texts : Texts{});
    EXPECT_EQ(broadcast_strings({axis}, rank == 0 ? texts : Texts{"other"}), texts);
    EXPECT_THAT(broadcast_strings({axis}, rank == 0 ? Texts{} : texts), IsEmpty());
    EXPECT_THAT(all_gather_unique_names({axis}, {"all", "own " + std::to_string(2 - rank)}),
                ElementsAre("all", "own 0", "own 1", "own 2"));
  });
}

}  // namespace
}  // namespace megatron
