// The AMX micro-kernel: 32 × 32 sums in four tiles of 16 × 16, fed by two tiles of rows and two of
// a panel, each with 16 lines of 16 steps. `Tiles` is the CPU's tile registers, or their emulation
// in tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/gemm_packing.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr std::int64_t kTile = 16, kTileBytes = 64;

/// Packs panels padded to whole tiles: the steps past depth are zero.
inline void pack_pairs_in_tiles(const PackArguments& p) {
  pack_pairs(p);
  const std::int64_t steps = (p.depth + 1) / 2, padded = (steps + kTile - 1) / kTile * kTile;
  char* panel = static_cast<char*>(p.to);
  for (std::int64_t c = 0; c < p.count; c += p.to_stride, panel += p.panel_stride)
    std::fill_n(reinterpret_cast<std::uint32_t*>(panel) + steps * p.to_stride,
                (padded - steps) * p.to_stride, 0u);
}

/// Copies rows that lie across depth. Packs sixteen of their steps side by side, then transposes
/// them.
inline void copy_transposed(const PackArguments& p) {
  const std::int64_t steps = (p.depth + 1) / 2;
  std::uint32_t square[kTile * kTile];
  for (std::int64_t c = 0; c < p.count; c += kTile) {
    const std::int64_t lines = std::min(kTile, p.count - c);
    for (std::int64_t s = 0; s < steps; s += kTile) {
      PackArguments part = p;
      part.from =
          static_cast<const std::uint16_t*>(p.from) + 2 * s * p.depth_stride + c * p.cross_stride;
      part.depth = std::min(2 * kTile, p.depth - 2 * s);
      part.count = lines;
      part.to = square;
      part.to_stride = kTile;
      pack_pairs(part);
      const std::int64_t taken = (part.depth + 1) / 2;
      for (std::int64_t i = 0; i < lines; ++i) {
        auto* line = static_cast<std::uint32_t*>(p.to) + (c + i) * p.to_stride + s;
        for (std::int64_t j = 0; j < taken; ++j) line[j] = square[j * kTile + i];
      }
    }
  }
}

inline void copy_pairs_in_tiles(const PackArguments& p) {
  p.depth_stride == 1 ? copy_pairs(p) : copy_transposed(p);
  const std::int64_t steps = (p.depth + 1) / 2, padded = (steps + kTile - 1) / kTile * kTile;
  for (std::int64_t c = 0; c < p.count; ++c)
    std::fill_n(static_cast<std::uint32_t*>(p.to) + c * p.to_stride + steps, padded - steps, 0u);
}

/// Stores or adds the sums of up to 32 rows to the result.
inline void store_sums(const MicroKernelArguments& p, const float* sums, std::int64_t rows,
                       float* out) {
  for (std::int64_t r = 0; r < rows; ++r, sums += kPanelColumns, out += p.out_stride) {
    if (!p.accumulate) {
      std::memcpy(out, sums, static_cast<std::size_t>(4 * p.columns));
    } else {
      for (std::int64_t c = 0; c < p.columns; ++c) out[c] += sums[c];
    }
  }
}

/// Multiplies `rows` ≤ 32 rows by the panel's 32 columns into a square buffer.
template <class Tiles>
void multiply_block(const MicroKernelArguments& p, std::int64_t rows, const char* a, float* sums) {
  const std::int64_t line_bytes = 4 * p.row_stride, panel_line = 4 * kPanelColumns;
  const bool both = rows > kTile;
  const char *lower = a + kTile * line_bytes, *panel = static_cast<const char*>(p.panel);
  Tiles::template clear<0>();
  if (both) Tiles::template clear<1>();
  for (std::int64_t s = 0; s < p.steps; s += kTile, panel += kTile * panel_line) {
    Tiles::template load_panel<0>(panel, panel_line);
    Tiles::template load_panel<1>(panel + kTileBytes, panel_line);
    Tiles::template load_rows<0>(a + 4 * s, line_bytes);
    Tiles::template multiply<0>();
    if (!both) continue;
    Tiles::template load_rows<1>(lower + 4 * s, line_bytes);
    Tiles::template multiply<1>();
  }
  Tiles::template store<0>(sums, panel_line);
  if (both) Tiles::template store<1>(sums + kTile * kPanelColumns, panel_line);
}

template <class Tiles>
void multiply_in_tiles(const MicroKernelArguments& p) {
  alignas(64) float sums[2 * kTile * kPanelColumns];
  const auto* a = static_cast<const char*>(p.a);
  Tiles tiles;
  for (std::int64_t row = 0; row < p.rows; row += 2 * kTile) {
    const std::int64_t rows = std::min(2 * kTile, p.rows - row);
    tiles.configure(std::min(rows, kTile), rows - std::min(rows, kTile));
    multiply_block<Tiles>(p, rows, a + 4 * row * p.row_stride, sums);
    store_sums(p, sums, rows, p.out + row * p.out_stride);
  }
}

template <class Tiles>
MicroKernel amx_micro_kernel() {
  return {.type = Type::bf16,
          .needs_packed_rows = true,
          .multiple = kTile,
          .rows = 2 * kTile,
          .pack = pack_pairs_in_tiles,
          .copy = copy_pairs_in_tiles,
          .multiply = multiply_in_tiles<Tiles>};
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
