#include "megatron/checkpoint/megatron_lm/foreign_tensor.h"

#include <gtest/gtest.h>

#include "expect_user_error.h"

namespace megatron {
namespace {

/// Elements 0 to 4 in one file and 5 to 11 in another.
StoredElements two_files() {
  return {.dtype = {"float32", 4},
          .runs = {{.file = "a", .offset = 100, .first = 0, .count = 5},
                   {.file = "b", .offset = 8, .first = 5, .count = 7}}};
}

TEST(StoredElements, AppendsAPartOfOthers) {
  StoredElements all;
  all.append(two_files(), 10, 2, "x");
  all.append(two_files(), 3, 4, "x");
  ASSERT_EQ(all.runs.size(), 3u);
  EXPECT_EQ(all.count(), 6);
  const StoredRun &end = all.runs[0], &before = all.runs[1], &behind = all.runs[2];
  EXPECT_EQ(end.file, "b");
  EXPECT_EQ(end.offset, 8u + 5 * 4);
  EXPECT_EQ(end.first, 0);
  EXPECT_EQ(before.file, "a");
  EXPECT_EQ(before.offset, 100u + 3 * 4);
  EXPECT_EQ(before.first, 2);
  EXPECT_EQ(before.count, 2);
  EXPECT_EQ(behind.file, "b");
  EXPECT_EQ(behind.offset, 8u);
  EXPECT_EQ(behind.first, 4);
  EXPECT_EQ(behind.count, 2);
}

TEST(StoredElements, RefusesMissingElementsAndOtherTypes) {
  StoredElements all;
  expect_user_error([&] { all.append(two_files(), 10, 3, "w"); },
                    {"w has 3 elements", "the shards have 2 of them"});
  all.append(two_files(), 0, 1, "w");
  StoredElements halves = two_files();
  halves.dtype = {"float16", 2};
  expect_user_error([&] { all.append(halves, 0, 1, "w"); }, {"its type differs"});
}

TEST(AddPieces, CutsASliceWhereFilesEnd) {
  std::vector<Piece> pieces;
  // Rows 1 and 2 of three are rows 10 and 11 of the whole.
  const TensorSlice rows{.global_offset = {10, 0}, .local_offset = {1, 0}, .shape = {2, 4}};
  ASSERT_TRUE(add_pieces(two_files(), {3, 4}, rows, pieces));
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].file, "a");
  EXPECT_EQ(pieces[0].offset, 100u + 4 * 4);
  EXPECT_EQ(pieces[0].slice.global_offset, (Shape{10, 0}));
  EXPECT_EQ(pieces[0].slice.shape, (Shape{1, 1}));
  EXPECT_EQ(pieces[1].file, "b");
  EXPECT_EQ(pieces[1].offset, 8u);
  EXPECT_EQ(pieces[1].slice.global_offset, (Shape{10, 1}));
  EXPECT_EQ(pieces[1].slice.shape, (Shape{1, 3}));
  EXPECT_EQ(pieces[2].offset, 8u + 3 * 4);
  EXPECT_EQ(pieces[2].slice.global_offset, (Shape{11, 0}));
  EXPECT_EQ(pieces[2].slice.shape, (Shape{1, 4}));
}

TEST(AddPieces, LeavesSlicesOfOneFileWholeAndRefusesGaps) {
  std::vector<Piece> pieces;
  const StoredElements one{.dtype = {"bfloat16", 2},
                           .runs = {{.file = "a", .offset = 6, .first = 0, .count = 24}}};
  const Shape shape{2, 3, 4};
  EXPECT_TRUE(add_pieces(one, shape, {{5, 0, 0}, {1, 1, 0}, {1, 2, 4}}, pieces));
  EXPECT_FALSE(add_pieces(one, shape, {{0, 0, 0}, {0, 1, 0}, {2, 2, 4}}, pieces));
  EXPECT_FALSE(add_pieces(one, shape, {{0, 0, 0}, {0, 1, 1}, {1, 2, 2}}, pieces));
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].offset, 6u + 16 * 2);
  EXPECT_EQ(pieces[0].slice.global_offset, (Shape{5, 0, 0}));
  EXPECT_EQ(pieces[0].slice.shape, (Shape{1, 2, 4}));
}

}  // namespace
}  // namespace megatron
