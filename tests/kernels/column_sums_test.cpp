// Compares sums over rows of every storage type with float64, and checks that they have the same
// bits however the blocks are shared.
#include "kernels/cpu/column_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "storage.h"

namespace megatron::kernels {
namespace {

std::vector<float> sums_of(const Storage& x, std::int64_t rows, std::int64_t columns,
                           std::int64_t share) {
  std::vector<float> blocks(static_cast<std::size_t>(row_blocks(rows) * columns), -1.0f),
      sums(static_cast<std::size_t>(columns), -1.0f);
  for (std::int64_t b = 0; b < row_blocks(rows); b += share)
    sum_row_blocks({x.data(), x.type(), blocks.data(), rows, columns}, b,
                   std::min(b + share, row_blocks(rows)));
  for (std::int64_t c = 0; c < columns; c += 7 * share)
    add_row_blocks({blocks.data(), sums.data(), Type::f32, row_blocks(rows), columns}, c,
                   std::min(c + 7 * share, columns));
  return sums;
}

TEST(ColumnSums, EqualFloat64AndDoNotDependOnShares) {
  for (const Type type : {Type::f32, Type::bf16, Type::f16}) {
    for (const std::int64_t rows : {1, 32, 33, 1000}) {
      for (const std::int64_t columns : {1, 17, 300}) {
        const Storage x = numbers(type, static_cast<std::size_t>(rows * columns), 3);
        const std::vector<float> sums = sums_of(x, rows, columns, 100);
        EXPECT_EQ(sums, sums_of(x, rows, columns, 1));
        for (std::int64_t c = 0; c < columns; ++c) {
          double expected = 0, size = 0;
          for (std::int64_t r = 0; r < rows; ++r) {
            expected += x[static_cast<std::size_t>(r * columns + c)];
            size += std::abs(x[static_cast<std::size_t>(r * columns + c)]);
          }
          ASSERT_NEAR(sums[static_cast<std::size_t>(c)], expected, 0x1p-23 * 6 * size)
              << rows << " rows";
        }
      }
    }
  }
}

TEST(ColumnSums, Float64) {
  const Storage x = numbers(Type::f64, 50 * 3, 4);
  std::vector<double> blocks(6), sums(3);
  sum_row_blocks({x.data(), Type::f64, blocks.data(), 50, 3}, 0, 2);
  add_row_blocks({blocks.data(), sums.data(), Type::f64, 2, 3}, 0, 3);
  for (std::size_t c = 0; c < 3; ++c) {
    double expected = 0;
    for (std::size_t r = 0; r < 50; ++r) expected += x[r * 3 + c];
    EXPECT_NEAR(sums[c], expected, 1e-13);
  }
}

}  // namespace
}  // namespace megatron::kernels
