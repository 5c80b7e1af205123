#include "megatron/training/loop/setup.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <sstream>

#include "training/small_run.h"

namespace megatron {
namespace {

/// Returns whether malloc maps a large block, as it does unless M_MMAP_MAX is set.
bool maps_large_blocks() {
  const std::size_t before = mallinfo2().hblks;
  void* volatile block = std::malloc(std::size_t{64} << 20);
  const bool is_mapped = mallinfo2().hblks > before;
  std::free(block);
  return is_mapped;
}

/// The allocators of a process belong to its program, which may be another one than megatron.
TEST(SetUp, LeavesTheAllocatorsOfTheProcess) {
  c10::Allocator* const earlier = c10::GetAllocator(c10::kCPU);
  c10::Allocator* const plain = c10::GetDefaultCPUAllocator();
  constexpr std::uint8_t kHighest = 100;
  c10::SetAllocator(c10::kCPU, plain, kHighest);
  const bool mapped = maps_large_blocks();
  std::ostringstream out;
  set_up(read_run(small_run::flags({})), out);
  EXPECT_EQ(c10::GetAllocator(c10::kCPU), plain);
  EXPECT_EQ(maps_large_blocks(), mapped);
  c10::SetAllocator(c10::kCPU, earlier, kHighest);
}

}  // namespace
}  // namespace megatron
