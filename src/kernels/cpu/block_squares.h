// Sums of squares of blocks of numbers. Squares of f32 are exact in double and are added in one
// order, so every instruction set gives the same bits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/block_sums.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Returns Σ of squares of at most kStateBlock numbers. Lane l adds the squares of elements l, l +
/// 32, …; then lane i takes lane i + half, for half = 16 … 1.
template <class T>
inline double squares(const T* values, std::int64_t count) {
  constexpr int kLanes = 32, kLanesAtOnce = 16;
  double lanes[kLanes] = {};
  if (count == kStateBlock) {
    for (int first = 0; first < kLanes; first += kLanesAtOnce) {
      double sums[kLanesAtOnce] = {};
      for (std::int64_t i = first; i < kStateBlock; i += kLanes) {
        for (int lane = 0; lane < kLanesAtOnce; ++lane)
          sums[lane] +=
              static_cast<double>(values[i + lane]) * static_cast<double>(values[i + lane]);
      }
      std::copy_n(sums, kLanesAtOnce, lanes + first);
    }
  } else {
    for (std::int64_t i = 0; i < count; ++i)
      lanes[i % kLanes] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

/// Computes sums[b] of each of `count` whole, contiguous blocks.
inline void block_squares(const float* values, std::int64_t count, double* sums) {
  constexpr std::int64_t kAhead = 4 * kStateBlock, kLine = 16;
  for (std::int64_t b = 0; b < count; ++b, values += kStateBlock) {
    for (std::int64_t i = 0; i < kStateBlock; i += kLine) __builtin_prefetch(values + kAhead + i);
    sums[b] = squares(values, kStateBlock);
  }
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
