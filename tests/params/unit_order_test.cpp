// The order in which units are read is learnt from earlier passes.
#include "megatron/params/unit_order.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

using Units = std::vector<std::size_t>;
constexpr std::size_t kNone = 99;

/// Reads the units of a pass and returns what was predicted to follow each.
Units predictions(UnitOrder& order, const Units& pass) {
  Units predicted;
  order.begin();
  for (const std::size_t unit : pass) {
    order.read(unit);
    predicted.push_back(order.next().value_or(kNone));
  }
  return predicted;
}

TEST(UnitOrder, PredictsWhatFollowedInTheLastPass) {
  UnitOrder order;
  const Units training{2, 1, 0, 1, 2, 1, 0, 1}, evaluation{2, 1, 0, 2, 1, 0};
  EXPECT_EQ(predictions(order, training), Units(8, kNone)) << "nothing is known";
  EXPECT_EQ(predictions(order, training), (Units{1, 0, 1, 2, 1, 0, 1, kNone}));
  EXPECT_EQ(predictions(order, evaluation), (Units{1, 0, 1, kNone, kNone, kNone}))
      << "begins as training does";
  EXPECT_EQ(predictions(order, evaluation), (Units{1, 0, 2, 1, 0, kNone}));
  EXPECT_EQ(predictions(order, training), (Units{1, 0, 2, 2, 1, 0, 1, kNone}))
      << "the latest pass comes first while it fits";
  EXPECT_EQ(predictions(order, training), (Units{1, 0, 1, 2, 1, 0, 1, kNone}));
}

TEST(UnitOrder, LooksFurtherAhead) {
  UnitOrder order;
  predictions(order, {2, 1, 0});
  order.begin();
  EXPECT_EQ(order.next(1), 1);
  order.read(2);
  EXPECT_EQ(order.next(1), 0);
  EXPECT_EQ(order.next(2), std::nullopt);
}

TEST(UnitOrder, APassWithoutReadsIsNone) {
  UnitOrder order;
  predictions(order, {1, 2});
  order.begin();
  order.begin();
  EXPECT_EQ(predictions(order, {1, 2}), (Units{2, kNone}));
}

TEST(UnitOrder, APassThatBeganOtherwiseIsNotFollowed) {
  UnitOrder order;
  predictions(order, {1, 2, 3});
  EXPECT_EQ(predictions(order, {4, 2, 3}), Units(3, kNone));
}

TEST(UnitOrder, FourPassesAreKnown) {
  UnitOrder order;
  for (const std::size_t first : {1, 2, 3, 4, 5}) predictions(order, {first, 0});
  EXPECT_EQ(predictions(order, {2, 0}), (Units{0, kNone}));
  EXPECT_EQ(predictions(order, {1, 0}), (Units{kNone, kNone}));
}

}  // namespace
}  // namespace megatron
