#include "megatron/base/cpu_caching_allocator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

namespace megatron {
namespace {

constexpr std::size_t kMegabyte = 1 << 20;
const CpuCachingAllocator::Options kOptions{.address_space = 256 * kMegabyte,
                                            .growth_bytes = kMegabyte};

/// Blocks that are filled with a pattern, to detect overlaps.
struct Blocks {
  CpuCachingAllocator& heap;
  std::vector<std::pair<unsigned char*, std::size_t>> live = {};

  void add(std::size_t bytes, unsigned char mark) {
    auto* data = static_cast<unsigned char*>(heap.allocate(bytes));
    ASSERT_NE(data, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 64, 0u);
    EXPECT_TRUE(heap.owns(data));
    EXPECT_GE(CpuCachingAllocator::usable_size(data), bytes);
    std::memset(data, mark, bytes);
    live.emplace_back(data, bytes);
  }
  void drop(std::size_t index) {
    const auto [data, bytes] = live[index];
    EXPECT_TRUE(std::all_of(data, data + bytes, [first = *data](unsigned char byte) {
      return byte == first;
    })) << "blocks overlap";
    heap.free(data);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(index));
  }
};

TEST(CpuCachingAllocator, BlocksOfAnySizeDoNotOverlap) {
  CpuCachingAllocator heap(kOptions);
  Blocks blocks{heap};
  std::mt19937 random(1);
  for (int i = 0; i < 20000; ++i) {
    if (blocks.live.size() > 100 || (!blocks.live.empty() && random() % 2 == 0)) {
      blocks.drop(random() % blocks.live.size());
    } else {
      const std::size_t limit = std::size_t{1} << (random() % 20);
      blocks.add(1 + random() % limit, static_cast<unsigned char>(random()));
    }
    if (i % 5000 == 0) heap.empty_cache();
  }
  while (!blocks.live.empty()) blocks.drop(0);
}

TEST(CpuCachingAllocator, ARepeatedPatternTakesNothingMoreFromTheSystem) {
  CpuCachingAllocator heap(kOptions);
  std::mt19937 random(2);
  std::vector<std::size_t> sizes(200);
  std::ranges::generate(sizes, [&] { return 1 + random() % (512 << 10); });
  std::int64_t calls = 0;
  for (int step = 0; step < 4; ++step) {
    std::vector<void*> live;
    for (const std::size_t size : sizes) {
      live.push_back(heap.allocate(size));
      if (live.size() % 3 == 0) {
        heap.free(live.front());
        live.erase(live.begin());
      }
    }
    for (void* data : live) heap.free(data);
    if (step == 0) calls = heap.statistics().system_calls;
  }
  EXPECT_GT(calls, 0);
  EXPECT_EQ(heap.statistics().system_calls, calls);
  EXPECT_EQ(heap.statistics().allocations, 800);
}

TEST(CpuCachingAllocator, FreedNeighboursServeLargerBlocks) {
  CpuCachingAllocator heap(kOptions);
  std::vector<void*> small;
  for (int i = 0; i < 16; ++i) small.push_back(heap.allocate(kMegabyte));
  const std::size_t held = heap.statistics().reserved_bytes;
  EXPECT_LE(held, 18 * kMegabyte) << "little more than was asked for";
  for (const int i : {1, 3, 0, 2, 7, 6, 5, 4, 15, 14, 13, 12, 8, 9, 10, 11})
    heap.free(small[static_cast<std::size_t>(i)]);
  EXPECT_EQ(heap.allocate(16 * kMegabyte), small[0]);
  EXPECT_EQ(heap.statistics().reserved_bytes, held);
}

TEST(CpuCachingAllocator, TakesTheSmallestThatFits) {
  CpuCachingAllocator heap(kOptions);
  void* large = heap.allocate(5 * kMegabyte);
  heap.allocate(64);
  void* fitting = heap.allocate(3 * kMegabyte);
  heap.allocate(64);
  heap.free(large);
  heap.free(fitting);
  EXPECT_EQ(heap.allocate(3 * kMegabyte), fitting);
  EXPECT_EQ(heap.allocate(4 * kMegabyte), large);
}

TEST(CpuCachingAllocator, TakesTheSmallestOfOneFreeList) {
  CpuCachingAllocator heap(kOptions);
  void* larger = heap.allocate(5 * kMegabyte + 65536);
  heap.allocate(64);
  void* smaller = heap.allocate(5 * kMegabyte);
  heap.allocate(64);
  heap.free(smaller);
  heap.free(larger);
  EXPECT_EQ(heap.allocate(5 * kMegabyte), smaller);
}

TEST(CpuCachingAllocator, GivesPagesBackAndCountsTheirReturn) {
  CpuCachingAllocator heap(kOptions);
  auto* data = static_cast<unsigned char*>(heap.allocate(8 * kMegabyte));
  data[4 * kMegabyte] = 7;
  const std::size_t held = heap.statistics().reserved_bytes;
  const std::int64_t calls = heap.statistics().system_calls;
  heap.free(data);
  heap.empty_cache();
  heap.empty_cache();
  EXPECT_LE(heap.statistics().reserved_bytes, held - 8 * kMegabyte + 4096);
  EXPECT_EQ(heap.allocate(8 * kMegabyte), data);
  EXPECT_EQ(data[4 * kMegabyte], 0) << "the page was given back";
  EXPECT_GE(heap.statistics().reserved_bytes, 8 * kMegabyte);
  EXPECT_EQ(heap.statistics().system_calls, calls + 1);
}

TEST(CpuCachingAllocator, EndsWithItsAddressSpace) {
  CpuCachingAllocator heap(kOptions);
  EXPECT_EQ(heap.allocate(257 * kMegabyte), nullptr);
  EXPECT_NE(heap.allocate(200 * kMegabyte), nullptr);
  EXPECT_EQ(heap.allocate(100 * kMegabyte), nullptr);
  EXPECT_NE(heap.allocate(40 * kMegabyte), nullptr);
}

TEST(CpuCachingAllocator, ServesThreads) {
  CpuCachingAllocator heap(kOptions);
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&heap, seed] {
      Blocks blocks{heap};
      std::mt19937 random(seed);
      for (int i = 0; i < 3000; ++i) {
        blocks.add(1 + random() % 10000, static_cast<unsigned char>(random()));
        if (blocks.live.size() > 20) blocks.drop(random() % 20);
      }
      while (!blocks.live.empty()) blocks.drop(0);
    });
  for (std::thread& thread : threads) thread.join();
}

std::size_t mapped_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t pages = 0;
  file >> pages;
  return pages * 4096;
}

/// ThreadSanitizer allows no maps at the fixed addresses; the heap then reserves its address space.
constexpr bool kHasFixedAddresses =
#ifdef __SANITIZE_THREAD__
    false;
#else
    true;
#endif

/// Returns the size of the address space, which ulimit -v limits.
TEST(CpuCachingAllocator, WithoutAReservationItTakesAddressesAsItGrows) {
  if (!kHasFixedAddresses) GTEST_SKIP() << "ThreadSanitizer does not map at fixed addresses";
  const std::size_t before = mapped_bytes();
  CpuCachingAllocator::Options options = kOptions;
  options.address_space = std::size_t{1} << 40;
  options.reserve_upfront = false;
  CpuCachingAllocator heap(options);
  options.growth_bytes /= 4;
  CpuCachingAllocator other(options);
  EXPECT_LT(mapped_bytes() - before, kMegabyte);
  Blocks blocks{heap}, others{other};
  for (unsigned char i = 0; i < 50; ++i) {
    blocks.add(std::size_t{i} * 20000 + 1, i);
    others.add(std::size_t{i} * 10000 + 1, i);
  }
  EXPECT_LT(mapped_bytes() - before, 60 * kMegabyte);
  for (const auto& [data, bytes] : blocks.live) EXPECT_FALSE(other.owns(data));
  for (const auto& [data, bytes] : others.live) EXPECT_FALSE(heap.owns(data));
  while (!blocks.live.empty()) blocks.drop(blocks.live.size() / 2);
  while (!others.live.empty()) others.drop(0);
}

TEST(CpuCachingAllocator, AHeapThatEndedLeavesItsPlaceToTheNext) {
  if (!kHasFixedAddresses) GTEST_SKIP() << "ThreadSanitizer does not map at fixed addresses";
  CpuCachingAllocator::Options options = kOptions;
  options.reserve_upfront = false;
  const std::size_t before = mapped_bytes();
  for (int i = 0; i < 100; ++i) {
    CpuCachingAllocator heap(options);
    Blocks{heap}.add(kMegabyte, 1);
  }
  EXPECT_LT(mapped_bytes() - before, kMegabyte);
}

}  // namespace
}  // namespace megatron
