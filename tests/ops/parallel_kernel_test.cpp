#include "megatron/ops/parallel_kernel.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <thread>

namespace megatron {
namespace {

TEST(ThreadScratch, StaysWhereItIsUntilMoreIsNeeded) {
  std::thread([] {
    void* const first = thread_workspace(5000);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 4096, 0U);
    EXPECT_EQ(thread_workspace(5000), first);
    EXPECT_EQ(thread_workspace(1), first);
    void* const large = thread_workspace(1 << 20);
    std::memset(large, 1, 1 << 20);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % 4096, 0U);
    EXPECT_EQ(thread_workspace(5000), large);
  }).join();
}

TEST(ThreadScratch, IsEachThreadsOwn) {
  void *mine = thread_workspace(4096), *others = nullptr;
  std::thread([&] { others = thread_workspace(4096); }).join();
  EXPECT_NE(mine, others);
}

TEST(ThreadScratch, IsCountedWhileItsThreadLives) {
  const std::int64_t before = thread_workspace_bytes();
  std::thread([&] {
    thread_workspace(3 << 20);
    EXPECT_EQ(thread_workspace_bytes() - before, 3 << 20);
  }).join();
  EXPECT_EQ(thread_workspace_bytes(), before);
}

}  // namespace
}  // namespace megatron
