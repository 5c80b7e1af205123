#include "megatron/base/once.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

namespace megatron {
namespace {

TEST(Once, RunsForOneOfManyThreadsWhileTheOthersWait) {
  Once once;
  int value = 0, runs = 0;
  std::atomic<int> seen = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 8; ++i)
      threads.emplace_back([&] {
        once.run([&] {
          std::this_thread::yield();
          ++runs;
          value = 7;
        });
        seen += value;
      });
  }
  EXPECT_EQ(runs, 1);
  EXPECT_EQ(seen, 8 * 7);
}

TEST(Once, RunsAgainAfterAnException) {
  Once once;
  int runs = 0;
  EXPECT_THROW(once.run([&] {
    ++runs;
    throw std::runtime_error("broken");
  }),
               std::runtime_error);
  for (int i = 0; i < 2; ++i) once.run([&] { ++runs; });
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace megatron
