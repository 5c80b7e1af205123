// Sums over the rows of a matrix, for the gradients of biases and norms. Rows are added in blocks
// of fixed size in the computing type, and blocks in double in ascending order. So a sum depends
// neither on threads nor on the instruction set, and sums of thousands of rows stay precise.
#pragma once

#include <cstdint>

#include "kernels/cpu/inline.h"
#include "kernels/type.h"

namespace megatron::kernels {

inline constexpr std::int64_t kRowsPerBlock = 32;

MEGATRON_KERNEL_INLINE constexpr std::int64_t row_blocks(std::int64_t rows) {
  return (rows + kRowsPerBlock - 1) / kRowsPerBlock;
}

/// blocks[b, c] = Σ x[r, c] over rows r of block b, for blocks [begin, end). Rows are added one
/// after another in f32 (f64 with f64). x [rows, columns] has `type`.
struct RowBlocksArguments {
  const void* x;
  Type type;
  void* blocks;
  std::int64_t rows, columns;
};

void sum_row_blocks(const RowBlocksArguments& arguments, std::int64_t begin, std::int64_t end);

/// sums[c] = Σ over blocks b of blocks[b, c] for columns [begin, end). Both are f32 or f64, as
/// `type` says.
struct ColumnSumsArguments {
  const void* blocks;
  void* sums;
  Type type;
  std::int64_t num_blocks, columns;
};

void add_row_blocks(const ColumnSumsArguments& arguments, std::int64_t begin, std::int64_t end);

}  // namespace megatron::kernels
