// Packs operands into panels. Lines along depth are transposed in squares of a vector's width, and
// lines across depth are copied one by one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "kernels/cpu/micro_kernel.h"
#include "kernels/cpu/storage_types.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
#else
constexpr int kWidth = 4;
#endif
using Vector = std::uint32_t __attribute__((vector_size(4 * kWidth)));

/// Number of lines to prefetch ahead. The lines are too many and too far apart for the hardware
/// prefetcher to see a pattern.
constexpr std::int64_t kPrefetchDistance = 12;

inline void prefetch_line(const void* line, std::int64_t bytes) {
  for (std::int64_t b = 0; b < bytes; b += 64)
    __builtin_prefetch(static_cast<const char*>(line) + b);
}

/// Swaps the off-diagonal blocks of `kHalf` lanes of two rows.
template <int kHalf, int... lane>
inline void swap_blocks(Vector& first, Vector& second, std::integer_sequence<int, lane...>) {
  const Vector low = __builtin_shufflevector(
      first, second, ((lane & kHalf) != 0 ? kWidth + lane - kHalf : lane)...);
  second = __builtin_shufflevector(first, second,
                                   ((lane & kHalf) != 0 ? kWidth + lane : lane + kHalf)...);
  first = low;
}

/// Transposes a square of kWidth rows in log2(kWidth) rounds, the first with `kHalf` = 1.
template <int kHalf = 1>
inline void transpose(Vector* rows) {
  if constexpr (kHalf < kWidth) {
#pragma GCC unroll 16
    for (int i = 0; i < kWidth; ++i) {
      if ((i & kHalf) != 0) continue;
      swap_blocks<kHalf>(rows[i], rows[i + kHalf], std::make_integer_sequence<int, kWidth>{});
    }
    transpose<2 * kHalf>(rows);
  }
}

/// Loads steps [first, first + count ≤ kWidth) of a line along depth, followed by zeros.
template <class Stored>
inline Vector load_steps(const Stored* line, std::int64_t first, std::int64_t count) {
  Vector result{};
  if constexpr (std::is_same_v<Stored, std::uint32_t>) {
    std::memcpy(&result, line + first, static_cast<std::size_t>(4 * count));
  } else {
    float wide[kWidth] = {};
    for (int i = 0; i < count; ++i) wide[i] = load(line[first + i]);
    std::memcpy(&result, wide, sizeof result);
  }
  return result;
}

template <class Stored>
inline Vector load_steps(const Stored* line, std::int64_t first) {
  Vector result;
  if constexpr (std::is_same_v<Stored, std::uint32_t>) {
    std::memcpy(&result, line + first, sizeof result);
  } else {
    float wide[kWidth];
    for (int i = 0; i < kWidth; ++i) wide[i] = load(line[first + i]);
    std::memcpy(&result, wide, sizeof result);
  }
  return result;
}

template <class Stored>
inline Vector load_steps_as_f32(const Stored* line) {
  if constexpr (std::is_same_v<Stored, float>)
    return load_steps(reinterpret_cast<const std::uint32_t*>(line), 0);
  else
    return load_steps(line, 0);
}

/// Packs lines of `steps` steps each, which lie `line_stride` elements apart. Stored is uint32_t
/// when steps are copied unchanged.
template <class Stored>
void pack_lines_along_depth(const PackArguments& p, std::int64_t steps, std::int64_t line_stride) {
  const auto* from = static_cast<const Stored*>(p.from);
  for (std::int64_t c = 0; c < p.to_stride; c += kWidth) {
    const std::int64_t lines = std::clamp<std::int64_t>(p.count - c, 0, kWidth),
                       room = std::min<std::int64_t>(kWidth, p.to_stride - c);
    auto* to = static_cast<std::uint32_t*>(p.to) + c;
    for (std::int64_t s = 0; s < steps; s += kWidth) {
      const std::int64_t taken = std::min<std::int64_t>(kWidth, steps - s);
      Vector square[kWidth];
      if (lines == kWidth && taken == kWidth) {
#pragma GCC unroll 16
        for (int i = 0; i < kWidth; ++i) {
          square[i] = load_steps(from + (c + i) * line_stride, s);
          // Prefetches the next lines, as far ahead as a cache can hold.
          __builtin_prefetch(from + (c + kWidth + i) * line_stride + s, 0, 2);
        }
      } else {
        for (int i = 0; i < kWidth; ++i)
          square[i] = i < lines ? load_steps(from + (c + i) * line_stride, s, taken) : Vector{};
      }
      transpose(square);
      for (std::int64_t i = 0; i < taken; ++i, to += p.to_stride) {
        if (room == kWidth) {
          std::memcpy(to, &square[i], sizeof(Vector));
        } else {
          std::memcpy(to, &square[i], static_cast<std::size_t>(4 * room));
        }
      }
    }
  }
}

/// Calls pack(panel) for each panel.
template <class Pack>
void for_each_panel(const PackArguments& p, Pack pack) {
  PackArguments panel = p;
  for (std::int64_t c = 0; c < p.count; c += p.to_stride) {
    panel.from =
        static_cast<const char*>(p.from) + c * p.cross_stride * (p.type == Type::f32 ? 4 : 2);
    panel.count = std::min(p.to_stride, p.count - c);
    panel.to = static_cast<char*>(p.to) + c / p.to_stride * p.panel_stride;
    pack(panel);
  }
}

/// Copies a line to f32. 16-bit numbers are widened.
template <class Stored>
inline void widen_line(const Stored* __restrict line, std::int64_t count, std::int64_t room,
                       float* __restrict to) {
  std::int64_t c = 0;
  for (; c + kWidth <= count; c += kWidth) {
    const Vector part = load_steps_as_f32(line + c);
    std::memcpy(to + c, &part, sizeof part);
  }
  for (; c < count; ++c) to[c] = load(line[c]);
  for (; c < room; ++c) to[c] = 0;
}

/// Packs one depth after another through all panels, so that memory is read in order.
template <class Stored>
void pack_lines_across_depth(const PackArguments& p) {
  for (std::int64_t d = 0; d < p.depth; ++d) {
    const auto* line = static_cast<const Stored*>(p.from) + d * p.depth_stride;
    char* to = static_cast<char*>(p.to) + 4 * d * p.to_stride;
    prefetch_line(line + kPrefetchDistance * p.depth_stride,
                  p.count * static_cast<std::int64_t>(sizeof(Stored)));
    for (std::int64_t c = 0; c < p.count; c += p.to_stride, to += p.panel_stride)
      widen_line(line + c, std::min(p.to_stride, p.count - c), p.to_stride,
                 reinterpret_cast<float*>(to));
  }
}

/// Packs any storage type to f32.
inline void pack_to_f32(const PackArguments& p) {
  if (p.depth_stride == 1 && p.count > p.to_stride) return for_each_panel(p, pack_to_f32);
  const bool along = p.depth_stride == 1 && p.count > 0;
  if (p.type == Type::f32)
    return along ? pack_lines_along_depth<std::uint32_t>(p, p.depth, p.cross_stride)
                 : pack_lines_across_depth<float>(p);
  if (p.type == Type::bf16)
    return along ? pack_lines_along_depth<Bf16>(p, p.depth, p.cross_stride)
                 : pack_lines_across_depth<Bf16>(p);
  along ? pack_lines_along_depth<F16>(p, p.depth, p.cross_stride) : pack_lines_across_depth<F16>(p);
}

using Pairs = std::uint16_t __attribute__((vector_size(4 * kWidth)));

/// Replaces two vectors by the two that hold their lanes in turn: a0 b0 a1 b1 …
template <int... lane>
inline void interleave_lanes(Pairs& first, Pairs& second, std::integer_sequence<int, lane...>) {
  const Pairs low = __builtin_shufflevector(first, second, (lane / 2 + lane % 2 * 2 * kWidth)...);
  second = __builtin_shufflevector(first, second, (kWidth + lane / 2 + lane % 2 * 2 * kWidth)...);
  first = low;
}

/// Interleaves two neighbours of depth. `second` is null at the end of an odd depth.
inline void interleave(const std::uint16_t* __restrict first,
                       const std::uint16_t* __restrict second, std::int64_t count,
                       std::uint32_t* __restrict to) {
  if (second == nullptr) {
    for (std::int64_t c = 0; c < count; ++c) to[c] = first[c];
    return;
  }
  std::int64_t c = 0;
  for (; c + 2 * kWidth <= count; c += 2 * kWidth) {
    Pairs line[2];
    std::memcpy(&line[0], first + c, sizeof(Pairs));
    std::memcpy(&line[1], second + c, sizeof(Pairs));
    interleave_lanes(line[0], line[1], std::make_integer_sequence<int, 2 * kWidth>{});
    std::memcpy(to + c, line, sizeof line);
  }
  for (; c < count; ++c)
    to[c] = static_cast<std::uint32_t>(first[c]) | static_cast<std::uint32_t>(second[c]) << 16;
}

/// Packs the last step of an odd depth, whose second half is zero.
inline void pack_last_of_odd_depth(const PackArguments& p) {
  const auto* from = static_cast<const std::uint16_t*>(p.from) + p.depth - 1;
  auto* to = static_cast<std::uint32_t*>(p.to) + p.depth / 2 * p.to_stride;
  for (std::int64_t c = 0; c < p.to_stride; ++c) to[c] = c < p.count ? from[c * p.cross_stride] : 0;
}

/// Packs bf16 unchanged, in pairs along depth.
inline void pack_pairs(const PackArguments& p) {
  if (p.depth_stride == 1 && p.count > p.to_stride) return for_each_panel(p, pack_pairs);
  const std::int64_t pairs = p.depth / 2;
  const auto* from = static_cast<const std::uint16_t*>(p.from);
  if (p.depth_stride == 1) {
    if (p.cross_stride % 2 == 0) {
      pack_lines_along_depth<std::uint32_t>(p, pairs, p.cross_stride / 2);
    } else {
      auto* to = static_cast<std::uint32_t*>(p.to);
      for (std::int64_t s = 0; s < pairs; ++s, to += p.to_stride) {
        for (std::int64_t c = 0; c < p.to_stride; ++c) {
          to[c] = 0;
          if (c < p.count) std::memcpy(to + c, from + c * p.cross_stride + 2 * s, 4);
        }
      }
    }
    if (p.depth % 2 != 0) pack_last_of_odd_depth(p);
    return;
  }
  for (std::int64_t d = 0; d < p.depth; d += 2) {
    const std::uint16_t *first = from + d * p.depth_stride,
                        *second = d + 1 < p.depth ? first + p.depth_stride : nullptr;
    char* to = static_cast<char*>(p.to) + 2 * d * p.to_stride;
    prefetch_line(first + kPrefetchDistance * p.depth_stride, 2 * p.count);
    prefetch_line(first + (kPrefetchDistance + 1) * p.depth_stride, 2 * p.count);
    for (std::int64_t c = 0; c < p.count; c += p.to_stride, to += p.panel_stride) {
      const std::int64_t count = std::min(p.to_stride, p.count - c);
      auto* line = reinterpret_cast<std::uint32_t*>(to);
      interleave(first + c, second != nullptr ? second + c : nullptr, count, line);
      std::fill(line + count, line + p.to_stride, 0u);
    }
  }
}

/// Copies lines along depth one after another. `Packed` is f32, or bf16, of which two make a step.
template <class Stored, class Packed>
void copy_lines(const PackArguments& p) {
  const std::int64_t stride = p.to_stride * 4 / static_cast<std::int64_t>(sizeof(Packed));
  for (std::int64_t c = 0; c < p.count; ++c) {
    const auto* __restrict line = static_cast<const Stored*>(p.from) + c * p.cross_stride;
    auto* __restrict to = static_cast<Packed*>(p.to) + c * stride;
    prefetch_line(line + p.cross_stride, p.depth * static_cast<std::int64_t>(sizeof(Stored)));
    if constexpr (std::is_same_v<Stored, Packed>) {
      std::memcpy(to, line, static_cast<std::size_t>(p.depth) * sizeof(Stored));
    } else {
      for (std::int64_t d = 0; d < p.depth; ++d) to[d] = load(line[d]);
    }
    if (sizeof(Packed) == 2 && p.depth % 2 != 0) std::memset(to + p.depth, 0, sizeof(Packed));
  }
}

inline void copy_lines_to_f32(const PackArguments& p) {
  if (p.type == Type::f32) return copy_lines<float, float>(p);
  p.type == Type::bf16 ? copy_lines<Bf16, float>(p) : copy_lines<F16, float>(p);
}

inline void copy_pairs(const PackArguments& p) { copy_lines<Bf16, Bf16>(p); }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
