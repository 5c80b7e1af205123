#include "megatron/base/ordered_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <stdexcept>

namespace megatron {
namespace {

OrderedPool<int, int>::Source count_to(int end) {
  return
      [next = 0, end]() mutable { return next < end ? std::optional<int>(next++) : std::nullopt; };
}

class OrderedPoolTest : public ::testing::TestWithParam<int> {};

TEST_P(OrderedPoolTest, DeliversInOrder) {
  OrderedPool<int, int> pool({.workers = GetParam(), .depth = 3}, count_to(200), [](int value) {
    if (value % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
    return value * value;
  });
  for (int i = 0; i < 200; ++i) ASSERT_EQ(pool.next(), i * i);
  EXPECT_EQ(pool.next(), std::nullopt);
  EXPECT_EQ(pool.next(), std::nullopt);
}

TEST_P(OrderedPoolTest, ThrowsAtItsPlace) {
  OrderedPool<int, int> pool({.workers = GetParam(), .depth = 8}, count_to(50), [](int value) {
    if (value >= 20) throw std::runtime_error("at " + std::to_string(value));
    return value;
  });
  for (int i = 0; i < 20; ++i) ASSERT_EQ(pool.next(), i);
  try {
    pool.next();
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "at 20");
  }
  EXPECT_EQ(pool.next(), std::nullopt);
}

TEST_P(OrderedPoolTest, SourceErrorsComeAfterEarlierOutputs) {
  int next = 0;
  OrderedPool<int, int> pool(
      {.workers = GetParam(), .depth = 8},
      [&]() -> std::optional<int> {
        if (next == 5) throw std::runtime_error("source");
        return next++;
      },
      [](int value) { return value; });
  for (int i = 0; i < 5; ++i) ASSERT_EQ(pool.next(), i);
  EXPECT_THROW(pool.next(), std::runtime_error);
}

TEST_P(OrderedPoolTest, EndsWhenAbandoned) {
  OrderedPool<int, int> pool({.workers = GetParam(), .depth = 2}, count_to(1000000),
                             [](int value) { return value; });
  EXPECT_EQ(pool.next(), 0);
}

INSTANTIATE_TEST_SUITE_P(Workers, OrderedPoolTest, ::testing::Values(0, 1, 4));

}  // namespace
}  // namespace megatron
