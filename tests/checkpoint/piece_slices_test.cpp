#include "megatron/checkpoint/piece_slices.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "megatron/checkpoint/tensor_bytes.h"

namespace megatron {
namespace {

TEST(PieceSlices, CoverAFlatRangeInOrder) {
  const Shape shape{3, 4, 5};
  const at::Tensor numbers = at::arange(60).view(shape);
  for (std::int64_t first = 0; first < 60; ++first) {
    for (std::int64_t count = 0; first + count <= 60; ++count) {
      const auto slices = flat_range_slices(shape, first, count);
      EXPECT_LE(slices.size(), 5u);
      std::int64_t next = first;
      for (const TensorSlice& slice : slices) {
        EXPECT_EQ(slice.local_offset, slice.global_offset);
        const at::Tensor part = narrow_to(numbers, slice.local_offset, slice.shape).flatten();
        EXPECT_TRUE(part.equal(at::arange(next, next + part.numel())));
        next += part.numel();
      }
      EXPECT_EQ(next, first + count);
    }
  }
}

// A piece is any range of the elements of a rank's tensor, which holds two runs of columns.
TEST(PieceSlices, ViewTheElementsOfTheGlobalTensor) {
  const Sharding sharding = Sharding::split({3, 12}, 1, {{6}, {6}});
  const at::Tensor global = at::arange(36).view({3, 12});
  const Axis axis{"tp", 1, 2};
  Parameter parameter("w", {.sharding = sharding, .init = Init::zeros(), .tags = {}}, {axis});
  const std::vector<TensorSlice> slices = sharding.slices({&axis, 1});
  at::Tensor local = at::empty(parameter.local_shape(), at::kLong);
  for (const TensorSlice& slice : slices)
    narrow_to(local, slice.local_offset, slice.shape)
        .copy_(narrow_to(global, slice.global_offset, slice.shape));
  for (std::int64_t first = 0; first < local.numel(); ++first) {
    for (std::int64_t count = 1; first + count <= local.numel(); ++count) {
      const ParameterPiece piece{.parameter = &parameter, .first = first, .count = count};
      const at::Tensor flat = piece.of(local);
      std::int64_t covered = 0;
      for (const TensorSlice& slice : piece_slices(piece, slices)) {
        const at::Tensor part = view_slice(flat, piece, slice);
        EXPECT_TRUE(part.equal(narrow_to(global, slice.global_offset, slice.shape)));
        EXPECT_TRUE(part.equal(narrow_to(local, slice.local_offset, slice.shape)));
        covered += part.numel();
      }
      EXPECT_EQ(covered, count);
    }
  }
}

}  // namespace
}  // namespace megatron
