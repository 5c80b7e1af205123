#include "megatron/checkpoint/slice_math.h"

#include <gtest/gtest.h>

#include <vector>

namespace megatron {
namespace {

using Slices = std::vector<TensorSlice>;

TEST(SliceMath, TellsWhetherSlicesTileATensor) {
  const Shape shape{4, 4};
  EXPECT_EQ(tiling_error(shape, Slices{whole_slice({4, 4})}), "");
  EXPECT_EQ(tiling_error(shape, Slices{slice_at({0, 0}, {2, 4}), slice_at({2, 0}, {2, 1}),
                                       slice_at({2, 1}, {2, 3})}),
            "");
  EXPECT_NE(tiling_error(shape, Slices{slice_at({0, 0}, {2, 4}), slice_at({1, 0}, {2, 4})}), "");
  EXPECT_NE(tiling_error(shape, Slices{slice_at({0, 0}, {3, 4})}), "");
  EXPECT_NE(tiling_error(shape, Slices{slice_at({0, 0}, {5, 4})}), "");
  EXPECT_NE(tiling_error(shape, Slices{slice_at({0}, {4, 4})}), "");
  EXPECT_EQ(tiling_error(Shape{}, Slices{whole_slice({})}), "");
  EXPECT_NE(tiling_error(Shape{}, Slices{whole_slice({}), whole_slice({})}), "");
  EXPECT_EQ(tiling_error(Shape{0, 4}, Slices{}), "");
}

TEST(SliceMath, AnIntersectionKeepsItsPlaceInTheFirstTensor) {
  const TensorSlice a{.global_offset = {4, 0}, .local_offset = {1, 2}, .shape = {6, 3}};
  const TensorSlice b{.global_offset = {7, 1}, .local_offset = {0, 0}, .shape = {9, 9}};
  EXPECT_EQ(intersect(a, b), (TensorSlice{{7, 1}, {4, 3}, {3, 2}}));
  EXPECT_EQ(intersect(b, a), (TensorSlice{{7, 1}, {0, 0}, {3, 2}}));
  EXPECT_EQ(intersect(a, slice_at({10, 0}, {1, 3})), std::nullopt) << "they touch";
  EXPECT_EQ(intersect(whole_slice({}), whole_slice({})), whole_slice({}));
}

}  // namespace
}  // namespace megatron
