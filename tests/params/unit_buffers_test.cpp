// Buffers of units: reused when kept, but not while something refers to one.
#include "megatron/params/unit_buffers.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(UnitBuffers, KeptOnesAreReused) {
  UnitBuffers buffers(c10::kCPU, /*largest=*/4096, /*keeps_buffers=*/true);
  at::Tensor buffer = buffers.take(100);
  EXPECT_EQ(buffer.numel(), 4096);
  const void* const first = buffer.data_ptr();
  buffers.give_back(std::move(buffer));
  buffer = buffers.take(4096);
  EXPECT_EQ(buffer.data_ptr(), first);
  EXPECT_NE(buffers.take(1).data_ptr(), first) << "it is in use";
}

TEST(UnitBuffers, OneThatIsReadIsNotReused) {
  UnitBuffers buffers(c10::kCPU, 4096, true);
  at::Tensor buffer = buffers.take(4096);
  const at::Tensor read = BufferCursor(buffer).next(8, at::kFloat);
  buffers.give_back(std::move(buffer));
  EXPECT_NE(buffers.take(4096).data_ptr(), read.data_ptr());
}

TEST(UnitBuffers, OthersHaveTheSizeOfTheirUnit) {
  UnitBuffers buffers(c10::kCPU, 4096, false);
  EXPECT_EQ(buffers.take(100).numel(), 100);
  EXPECT_ANY_THROW(buffers.take(4097));
}

TEST(UnitBuffers, CursorCutsOnePartAfterTheOther) {
  UnitBuffers buffers(c10::kCPU, 4096, false);
  BufferCursor cursor(buffers.take(1024 + 512));
  const at::Tensor wide = cursor.next(256, at::kFloat), narrow = cursor.next(256, at::kBFloat16);
  EXPECT_EQ(wide.scalar_type(), at::kFloat);
  EXPECT_EQ(static_cast<char*>(narrow.data_ptr()) - static_cast<char*>(wide.data_ptr()), 1024);
}

}  // namespace
}  // namespace megatron
