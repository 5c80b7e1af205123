// Copies of rows, and the sums of those copies: what takes tokens to their experts and back.
#pragma once

#include <cstdint>

#include "kernels/type.h"

namespace megatron::kernels {

/// out[i] = in[source[i]], or zeros where source[i] < 0. Rows have `bytes` bytes.
struct GatherRowsArguments {
  const void* in;
  void* out;
  const std::int32_t* source;
  std::int64_t bytes;
};

/// out[t] = the sum of in[rows[j]] over j in [offsets[t], offsets[t + 1]), in float (double for
/// double), rounded once. The sum is a binary tree: summand j is pushed on a stack, and then the
/// two topmost partial sums are added folds[j] times. At the end one sum is left.
struct SumRowsArguments {
  const void* in;
  void* out;
  const std::int32_t* offsets;
  const std::int32_t* rows;
  const std::uint8_t* folds;
  Type type;
  std::int64_t columns;
};

/// The largest number of partial sums that one tree may hold at a time.
inline constexpr int kMostPartialSums = 40;

/// The kernels of one instruction set. They run on rows [begin, end) of `out`.
struct RowSumKernels {
  void (*gather)(const GatherRowsArguments&, std::int64_t begin, std::int64_t end);
  void (*sum)(const SumRowsArguments&, std::int64_t begin, std::int64_t end);
};

/// Returns the kernels of the best instruction set of this CPU.
const RowSumKernels& row_sum_kernels();

}  // namespace megatron::kernels
