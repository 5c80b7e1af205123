// Buffers of units: reused, but not while something refers to one.
#include "megatron/params/unit_buffers.h"

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(UnitBuffers, FreeOnesAreReused) {
  UnitBuffers buffers(c10::kCPU);
  at::Tensor large = buffers.take(4096), small = buffers.take(100);
  const void *const at_large = large.data_ptr(), *const at_small = small.data_ptr();
  buffers.give_back(std::move(large));
  buffers.give_back(std::move(small));
  small = buffers.take(50);
  EXPECT_EQ(small.data_ptr(), at_small) << "the smallest that is large enough";
  large = buffers.take(4000);
  EXPECT_EQ(large.data_ptr(), at_large);
  buffers.give_back(std::move(small));
  EXPECT_EQ(buffers.take(5000).numel(), 5000) << "in place of the small one";
  EXPECT_EQ(buffers.take(50).numel(), 50) << "which is gone";
}

// An embedding is much larger than a layer. Its buffer must not be taken by a layer when the output
// layer needs it.
TEST(UnitBuffers, MuchLargerOnesAreLeftForLargeUnits) {
  UnitBuffers buffers(c10::kCPU);
  at::Tensor large = buffers.take(4096);
  const void* const at_large = large.data_ptr();
  buffers.give_back(std::move(large));
  at::Tensor small = buffers.take(100);
  EXPECT_EQ(small.numel(), 100);
  EXPECT_EQ(buffers.free_bytes(), 4096);
  EXPECT_EQ(buffers.take(2048).data_ptr(), at_large) << "twice as large at most";
  buffers.give_back(std::move(small));
  EXPECT_EQ(buffers.free_bytes(), 100);
}

TEST(UnitBuffers, ReservedOnesSufficeForEachPass) {
  UnitBuffers buffers(c10::kCPU);
  buffers.reserve({16, 16, 0, 16, 64}, 2);
  EXPECT_EQ(buffers.free_bytes(), 16 + 16 + 64) << "the largest takes no place of the small ones";
  const at::Tensor small = buffers.take(16), other = buffers.take(16), large = buffers.take(64);
  EXPECT_EQ(buffers.free_bytes(), 0);
  UnitBuffers growing(c10::kCPU);
  growing.reserve({12, 14, 16}, 1);
  EXPECT_EQ(growing.free_bytes(), 16) << "one for sizes that are alike";
}

TEST(UnitBuffers, OneThatIsReadIsNotReused) {
  UnitBuffers buffers(c10::kCPU);
  at::Tensor buffer = buffers.take(4096);
  const at::Tensor read = BufferCursor(buffer).next(8, at::kFloat);
  buffers.give_back(std::move(buffer));
  EXPECT_NE(buffers.take(4096).data_ptr(), read.data_ptr());
}

TEST(UnitBuffers, CursorCutsOnePartAfterTheOther) {
  UnitBuffers buffers(c10::kCPU);
  BufferCursor cursor(buffers.take(1024 + 512));
  const at::Tensor wide = cursor.next(256, at::kFloat), narrow = cursor.next(256, at::kBFloat16);
  EXPECT_EQ(wide.scalar_type(), at::kFloat);
  EXPECT_EQ(static_cast<char*>(narrow.data_ptr()) - static_cast<char*>(wide.data_ptr()), 1024);
}

}  // namespace
}  // namespace megatron
