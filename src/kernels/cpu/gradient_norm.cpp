// Compiled once for each instruction set.
#include "kernels/cpu/gradient_norm.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/storage_types.h"

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
inline void whole_block_squares(const float* values, std::int64_t count, double* sums) {
  constexpr std::int64_t kAhead = 4 * kStateBlock, kLine = 16;
  for (std::int64_t b = 0; b < count; ++b, values += kStateBlock) {
    for (std::int64_t i = 0; i < kStateBlock; i += kLine) __builtin_prefetch(values + kAhead + i);
    sums[b] = squares(values, kStateBlock);
  }
}

/// Calls use(values, count) with elements [begin, end) of a gradient, converted to f32 or f64. The
/// range has at most one block.
template <class Use>
inline auto with_block(const GradientChunk& chunk, Type type, std::int64_t begin, std::int64_t end,
                       Use use) {
  const void* values = static_cast<const char*>(chunk.grad) + begin * size_of(type);
  if (type == Type::f64) return use(static_cast<const double*>(values), end - begin);
  if (type == Type::f32) return use(static_cast<const float*>(values), end - begin);
  float buffer[kStateBlock];
  conversions().to_f32(values, type, buffer, end - begin);
  return use(static_cast<const float*>(buffer), end - begin);
}

/// Returns the sum of squares of a block, some of whose elements are skipped.
inline double squares_of_some(const GradientChunk& chunk, Type type, std::int64_t begin,
                              std::int64_t end) {
  return with_block(chunk, type, begin, end, [&](const auto* values, std::int64_t count) {
    std::remove_cvref_t<decltype(*values)> counted[kStateBlock];
    for (std::int64_t i = 0; i < count; ++i)
      counted[i] = begin + i >= chunk.skip_begin && begin + i < chunk.skip_end ? 0 : values[i];
    return squares(counted, count);
  });
}

inline std::int64_t block_squares(const GradientChunk& chunk, Type type, double* blocks) {
  std::int64_t num_blocks = 0, begin = 0;
  if (type == Type::f32 && chunk.skip_begin == chunk.skip_end) {
    num_blocks = chunk.count / kStateBlock;
    begin = num_blocks * kStateBlock;
    whole_block_squares(static_cast<const float*>(chunk.grad), num_blocks, blocks);
  }
  for (; begin < chunk.count; begin += kStateBlock) {
    const std::int64_t end = std::min(begin + kStateBlock, chunk.count);
    const bool all_count = end <= chunk.skip_begin || begin >= chunk.skip_end;
    const auto of_all = [](const auto* values, std::int64_t count) {
      return squares(values, count);
    };
    blocks[num_blocks++] = all_count ? with_block(chunk, type, begin, end, of_all)
                                     : squares_of_some(chunk, type, begin, end);
  }
  return num_blocks;
}

inline std::int64_t count_zeros(const GradientChunk& chunk, Type type) {
  std::int64_t found = 0;
  const auto add = [&](std::int64_t begin, std::int64_t end) {
    for (; begin < end; begin += kStateBlock) {
      found += with_block(chunk, type, begin, std::min(begin + kStateBlock, end),
                          [](const auto* values, std::int64_t count) {
                            std::int64_t zeros = 0;
                            for (std::int64_t i = 0; i < count; ++i) zeros += values[i] == 0;
                            return zeros;
                          });
    }
  };
  add(0, chunk.skip_begin);
  add(chunk.skip_end, chunk.count);
  return found;
}

GradientNormKernels gradient_norm_kernels() { return {block_squares, count_zeros}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(GradientNormKernels, gradient_norm_kernels)
