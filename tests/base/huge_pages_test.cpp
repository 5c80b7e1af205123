#include "megatron/base/huge_pages.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <new>

namespace megatron {
namespace {

TEST(HugePages, HoldTablesOfEverySize) {
  for (const std::size_t count : {0u, 1u, 1000u, 262144u, 262145u, 1u << 20}) {
    HugePageVector<std::uint32_t> table(count, 7);
    for (std::size_t i = 0; i < 100; ++i) table.push_back(static_cast<std::uint32_t>(i));
    for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(table[i], 7u) << i << " of " << count;
    for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(table[count + i], i);
  }
}

TEST(HugePages, LargeBlocksBeginAtAPage) {
  void* block = allocate_huge_pages(std::size_t{3} << 20);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (std::size_t{2} << 20), 0u);
  free_huge_pages(block);
}

TEST(HugePages, TooMuchMemoryIsAnError) {
  EXPECT_THROW(allocate_huge_pages(std::numeric_limits<std::size_t>::max()), std::bad_alloc);
}

}  // namespace
}  // namespace megatron
