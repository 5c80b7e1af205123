// Sums over a parameter whose bits do not depend on which rank holds which part of it. Elements are
// added in blocks, blocks pairwise into chunks, and chunks in order. A rank that holds some blocks
// of a chunk publishes the sums of the largest subtrees it can form. The rank that has all of them
// adds them up to the sum that one rank with the whole chunk would get.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"

namespace megatron::kernels {

/// Number of elements of a block. The elements of a block of fp16 states also share one scale, a
/// power of two.
inline constexpr std::int64_t kStateBlock = 256;
/// A whole chunk has 2^kChunkLevel blocks. The chunks of a parameter begin at multiples of it.
inline constexpr std::int32_t kChunkLevel = 8;
inline constexpr std::int64_t kChunkElements = kStateBlock << kChunkLevel;

/// A slot holds the sum over 2^level blocks that begin at a multiple of 2^level. Blocks past the
/// end of the parameter count as zero.
struct SumSlot {
  std::int32_t level;
  bool is_last_of_chunk;
};

/// The slots of all parameters of the model, in ascending order of names and of elements. Parameter
/// p has the slots [first_slot[p], first_slot[p + 1]).
struct SumTable {
  const SumSlot* slots;
  const std::int64_t* first_slot;
  std::int64_t num_parameters;
};

/// Adds neighbours until one number is left. Overwrites `numbers`.
MEGATRON_HOST_DEVICE inline double pairwise_sum(double* numbers, std::int64_t count) {
  if (count == 0) return 0;
  for (; count > 1; count = (count + 1) / 2) {
    for (std::int64_t i = 0; i < count / 2; ++i) numbers[i] = numbers[2 * i] + numbers[2 * i + 1];
    if (count % 2 == 1) numbers[count / 2] = numbers[count - 1];
  }
  return numbers[0];
}

/// Adds the slots [begin, end) of one parameter: subtrees into chunks, then chunks in order.
MEGATRON_HOST_DEVICE inline double sum_slots(const SumSlot* slots, const double* sums,
                                             std::int64_t begin, std::int64_t end) {
  double total = 0, open[kChunkLevel + 2];
  std::int32_t levels[kChunkLevel + 2], depth = 0;
  for (std::int64_t s = begin; s < end; ++s) {
    double sum = sums[s];
    std::int32_t level = slots[s].level;
    for (; depth > 0 && levels[depth - 1] == level; ++level) sum = open[--depth] + sum;
    open[depth] = sum;
    levels[depth++] = level;
    if (!slots[s].is_last_of_chunk) continue;
    for (; depth > 1; --depth) open[depth - 2] += open[depth - 1];
    total += open[0];
    depth = 0;
  }
  return total;
}

}  // namespace megatron::kernels
