// The expected values were printed by numpy 2.4 and torch 2.11.
#include "megatron/datasets/random_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

namespace megatron {
namespace {

using ::testing::ElementsAre;

template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> values(count);
  std::iota(values.begin(), values.end(), T{0});
  return values;
}

TEST(RandomState, ShufflesAsNumpy) {
  RandomState random(1234);
  auto ten = counting<std::int32_t>(10);
  random.shuffle(std::span(ten));
  EXPECT_THAT(ten, ElementsAre(7, 2, 9, 1, 0, 8, 4, 5, 6, 3));
  auto six = counting<std::int64_t>(6);
  random.shuffle(std::span(six));
  EXPECT_THAT(six, ElementsAre(5, 0, 3, 4, 2, 1));
  auto thousand = counting<std::uint32_t>(1000);
  random.shuffle(std::span(thousand));
  EXPECT_THAT(std::vector(thousand.begin(), thousand.begin() + 8),
              ElementsAre(99, 146, 422, 681, 60, 879, 648, 40));
  EXPECT_THAT(std::vector(thousand.end() - 8, thousand.end()),
              ElementsAre(325, 476, 880, 120, 442, 374, 794, 892));
}

/// Depends on every value and on the order.
template <class T>
std::uint64_t polynomial(const std::vector<T>& values) {
  std::uint64_t sum = 0;
  for (const T value : values) sum = sum * 1000003 + static_cast<std::uint64_t>(value);
  return sum;
}

// More values than one fill of the generator, than random numbers drawn ahead, and than a mask.
TEST(RandomState, ShufflesManyValuesAsNumpy) {
  RandomState random(1234), skipping(1234);
  auto values = counting<std::uint32_t>(65537);
  random.shuffle(std::span(values));
  EXPECT_EQ(polynomial(values), 12331607567663625770u);
  EXPECT_EQ(random.interval(0xffffffffu), 765892134u);
  EXPECT_DOUBLE_EQ(random.uniform(), 0.7006537026127267);
  skipping.skip_shuffle(values.size());
  EXPECT_EQ(skipping.interval(0xffffffffu), 765892134u);
  RandomState other(1234);
  values = counting<std::uint32_t>(300000);
  other.shuffle(std::span(values));
  EXPECT_EQ(polynomial(values), 13035879750647165690u);
  EXPECT_EQ(other.interval(0xffffffffu), 3824097685u);
}

TEST(RandomState, TakesTheLargestSeedAndEmptyArrays) {
  RandomState random(4294967295u);
  std::vector<int> empty;
  random.shuffle(std::span(empty));
  auto eight = counting<std::int64_t>(8);
  random.shuffle(std::span(eight));
  EXPECT_THAT(eight, ElementsAre(1, 7, 6, 0, 5, 4, 2, 3));
}

TEST(RandomState, IsSeededWithAnArrayAsNumpy) {
  const auto draws = [](const std::vector<std::uint32_t>& words, std::uint64_t max, int count) {
    RandomState random(words);
    std::vector<std::uint64_t> values;
    for (int i = 0; i < count; ++i) values.push_back(random.interval(max));
    return values;
  };
  constexpr std::uint64_t kMost = (1u << 31) - 1;
  EXPECT_THAT(draws({4294967295u, 5, 3}, kMost, 4),
              ElementsAre(345982704, 2106984234, 885876630, 290117017));
  EXPECT_THAT(draws({1}, kMost, 4), ElementsAre(577090037, 297228362, 1492216543, 1298218544));
}

TEST(RandomState, DrawsBinomialsOfOneTrialAsNumpy) {
  const std::pair<double, std::string> cases[] = {{0.5, "110010010111111000110110"},
                                                  {0.3, "110010010000111000110000"},
                                                  {0.9, "011111111111111111111111"},
                                                  {1.0, "111111111111111111111111"},
                                                  {0.0, "000000000000000000000000"}};
  for (const auto& [probability, expected] : cases) {
    RandomState random(std::vector<std::uint32_t>{1234, 7, 0});
    std::string drawn;
    for (int i = 0; i < 24; ++i) drawn += random.bernoulli(probability) ? '1' : '0';
    EXPECT_EQ(drawn, expected) << probability;
    EXPECT_EQ(random.interval(999), 389u) << probability;
  }
}

TEST(Pcg64, DrawsDefaultRngIntegers) {
  const auto values = Pcg64(0).integers(1, 4096, 100000);
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 8),
              ElementsAre(3484, 2609, 2094, 1105, 1261, 168, 309, 68));
  EXPECT_THAT(std::vector(values.end() - 4, values.end()), ElementsAre(2592, 61, 100, 769));
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 204637097);
}

/// These ranges do not fit int32; UBSan sees an overflow.
TEST(Pcg64, DrawsFromTheWholeInt32Range) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  const auto whole = Pcg64(0).integers(kLeast, std::numeric_limits<std::int32_t>::max(), 1000);
  EXPECT_THAT(std::vector(whole.begin(), whole.begin() + 4),
              ElementsAre(1505919582, 588245966, 47830816, -988758537));
  EXPECT_EQ(std::accumulate(whole.begin(), whole.end(), std::int64_t{0}), 68563970105);
  const auto half = Pcg64(0).integers(kLeast, 0, 1000);
  EXPECT_THAT(std::vector(half.begin(), half.begin() + 4),
              ElementsAre(-320782033, -779618841, -1049826416, -1568121092));
  EXPECT_EQ(std::accumulate(half.begin(), half.end(), std::int64_t{0}), -1039459838694);
}

TEST(Pcg64, ARangeOfOneIntegerTakesNoDraw) {
  Pcg64 random(0);
  EXPECT_THAT(random.integers(7, 8, 3), ElementsAre(7, 7, 7));
  EXPECT_THAT(random.integers(1, 4096, 4), ElementsAre(3484, 2609, 2094, 1105));
}

// A quarter of these draws is rejected: 1.5 · 2^30 values do not divide 2^32.
TEST(Pcg64, RejectsDrawsThatWouldFavourSomeValues) {
  const auto values = Pcg64(0).integers(0, 1610612736, 1000);
  EXPECT_THAT(std::vector(values.begin(), values.begin() + 6),
              ElementsAre(1370026211, 1025898605, 823242924, 65992479, 121182730, 26619620));
  EXPECT_THAT(std::vector(values.end() - 4, values.end()),
              ElementsAre(766487046, 826453929, 240319761, 1171223670));
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), std::int64_t{0}), 847090504262);
  const auto others = Pcg64(1234).integers(0, 1610612736, 1000);
  EXPECT_THAT(std::vector(others.begin(), others.begin() + 4),
              ElementsAre(1577354853, 1591189680, 612348092, 275994307));
  EXPECT_EQ(std::accumulate(others.begin(), others.end(), std::int64_t{0}), 794089918141);
}

TEST(TorchRandperm, EqualsTorch) {
  EXPECT_THAT(torch_randperm(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(torch_randperm(7, 3), ElementsAre(5, 3, 4, 6, 0, 2, 1));
  const auto thousand = torch_randperm(1000, 1);
  EXPECT_THAT(std::vector(thousand.begin(), thousand.begin() + 10),
              ElementsAre(845, 303, 66, 436, 239, 593, 573, 999, 919, 268));
}

}  // namespace
}  // namespace megatron
