// The AMX micro-kernel: 32 × 32 sums in four tiles of 16 × 16, fed by two tiles of rows and two of
// a panel, each with 16 lines of 16 steps. `Tiles` is the CPU's tile registers, or their emulation
// in tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/gemm_packing.h"
#include "kernels/cpu/tile_gemm_plan.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

constexpr std::int64_t kTileBytes = 64;  ///< of a line of a tile

/// Packs panels padded to whole tiles: the steps past depth are zero.
inline void pack_pairs_in_tiles(const PackArguments& p) {
  pack_pairs(p);
  const std::int64_t steps = (p.depth + 1) / 2, padded = (steps + kTile - 1) / kTile * kTile;
  char* panel = static_cast<char*>(p.to);
  for (std::int64_t c = 0; c < p.count; c += p.to_stride, panel += p.panel_stride)
    std::fill_n(reinterpret_cast<std::uint32_t*>(panel) + steps * p.to_stride,
                (padded - steps) * p.to_stride, 0u);
}

/// Turns 16 lines of 16 steps into 16 lines of the other dimension, which lie `to_stride` steps
/// apart.
inline void transpose_tile(const std::uint32_t* from, std::int64_t from_stride, std::uint32_t* to,
                           std::int64_t to_stride) {
  for (std::int64_t row = 0; row < kTile; row += kWidth) {
    for (std::int64_t column = 0; column < kTile; column += kWidth) {
      Vector square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        square[i] = load_steps(from + (row + i) * from_stride, column);
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        std::memcpy(to + (column + i) * to_stride + row, &square[i], sizeof(Vector));
    }
  }
}

/// Packs a whole tile whose rows lie across depth.
inline void pack_tile_across(const PackArguments& p, std::uint32_t* to, std::int64_t line) {
  using Halves = std::uint16_t __attribute__((vector_size(2 * kWidth)));
  for (std::int64_t step = 0; step < kTile; step += kWidth) {
    for (std::int64_t row = 0; row < kTile; row += kWidth) {
      const auto* from = static_cast<const std::uint16_t*>(p.from) + row;
      Vector square[kWidth];
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i) {
        Halves first, second;
        std::memcpy(&first, from + 2 * (step + i) * p.depth_stride, sizeof first);
        std::memcpy(&second, from + (2 * (step + i) + 1) * p.depth_stride, sizeof second);
        square[i] = __builtin_convertvector(first, Vector) | __builtin_convertvector(second, Vector)
                                                                 << 16;
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kWidth; ++i)
        std::memcpy(to + (row + i) * line + step, &square[i], sizeof(Vector));
    }
  }
}

/// Packs a tile of up to 16 rows by 16 steps. Lines of the tile lie `line` steps apart. All its
/// steps past depth are zero, and lines past `p.count` are undefined.
inline void pack_tile(const PackArguments& p, std::uint32_t* to, std::int64_t line) {
  if (p.depth_stride == 1) {
    const auto* from = static_cast<const std::uint16_t*>(p.from);
    for (std::int64_t r = 0; r < p.count; ++r) {
      auto* row = reinterpret_cast<std::uint16_t*>(to + r * line);
      if (p.depth == 2 * kTile) {
        std::memcpy(row, from + r * p.cross_stride, kTileBytes);
      } else {
        std::memset(row, 0, kTileBytes);
        std::memcpy(row, from + r * p.cross_stride, static_cast<std::size_t>(2 * p.depth));
      }
    }
    return;
  }
  if (p.count == kTile && p.depth == 2 * kTile) return pack_tile_across(p, to, line);
  // The pairs of a depth lie side by side first.
  alignas(64) std::uint32_t pairs[kTile * kTile];
  PackArguments part = p;
  part.to = pairs;
  part.to_stride = kTile;
  pack_pairs_in_tiles(part);
  alignas(64) std::uint32_t rows[kTile * kTile];
  transpose_tile(pairs, kTile, rows, kTile);
  for (std::int64_t r = 0; r < p.count; ++r)
    std::memcpy(to + r * line, rows + r * kTile, kTileBytes);
}

/// Returns a part of the operand, 16 steps deep: up to `width` rows or columns from r on, and its
/// steps from s on.
inline PackArguments tile_of(const PackArguments& p, std::int64_t r, std::int64_t s,
                             std::int64_t width = kTile) {
  PackArguments part = p;
  part.from =
      static_cast<const std::uint16_t*>(p.from) + 2 * s * p.depth_stride + r * p.cross_stride;
  part.depth = std::min(2 * kTile, p.depth - 2 * s);
  part.count = std::min(width, p.count - r);
  return part;
}

/// Copies rows one after another, padded to whole tiles.
inline void copy_pairs_in_tiles(const PackArguments& p) {
  for (std::int64_t r = 0; r < p.count; r += kTile)
    for (std::int64_t s = 0; 2 * s < p.depth; s += kTile)
      pack_tile(tile_of(p, r, s), static_cast<std::uint32_t*>(p.to) + r * p.to_stride + s,
                p.to_stride);
}

/// Where `multiply_block` reads up to 32 rows: two strips of 16 rows, each of them tiles along
/// depth.
struct TileRows {
  const char* first;
  std::int64_t line_bytes, tile_bytes, strip_bytes;
};

/// Multiplies up to 32 rows (kBoth: more than 16) by the panel. Sums begin at zero, or with
/// `accumulate` at what `out` holds. Calls between() after each tile of depth.
template <class Tiles, bool kBoth, class Between>
inline __attribute__((always_inline)) void multiply_block(const TileRows& rows, const char* panel,
                                                          std::int64_t steps, bool accumulate,
                                                          float* out, std::int64_t out_stride,
                                                          const Between& between) {
  constexpr std::int64_t kPanelLine = 4 * kPanelColumns;
  const char* a = rows.first;
  float* const lower = out + kTile * out_stride;
  if (accumulate) {
    Tiles::template load_sums<0>(out, 4 * out_stride);
    if constexpr (kBoth) Tiles::template load_sums<1>(lower, 4 * out_stride);
  } else {
    Tiles::template clear<0>();
    if constexpr (kBoth) Tiles::template clear<1>();
  }
  for (std::int64_t s = 0; s < steps; s += kTile) {
    Tiles::template load_panel<0>(panel, kPanelLine);
    Tiles::template load_panel<1>(panel + kTileBytes, kPanelLine);
    Tiles::template load_rows<0>(a, rows.line_bytes);
    Tiles::template multiply<0>();
    if constexpr (kBoth) {
      Tiles::template load_rows<1>(a + rows.strip_bytes, rows.line_bytes);
      Tiles::template multiply<1>();
    }
    between();
    panel += kTile * kPanelLine;
    a += rows.tile_bytes;
  }
  Tiles::template store<0>(out, 4 * out_stride);
  if constexpr (kBoth) Tiles::template store<1>(lower, 4 * out_stride);
}

template <class Tiles, class Between>
void multiply_rows(std::int64_t rows, const TileRows& a, const char* panel, std::int64_t steps,
                   bool accumulate, float* out, std::int64_t out_stride, const Between& between) {
  if (rows > kTile) {
    multiply_block<Tiles, true>(a, panel, steps, accumulate, out, out_stride, between);
  } else {
    multiply_block<Tiles, false>(a, panel, steps, accumulate, out, out_stride, between);
  }
}

/// Copies `columns` sums of each row.
inline void copy_sums(const float* from, std::int64_t from_stride, float* to,
                      std::int64_t to_stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r)
    std::memcpy(to + r * to_stride, from + r * from_stride, static_cast<std::size_t>(4 * columns));
}

template <class Tiles>
void multiply_in_tiles(const MicroKernelArguments& p) {
  Tiles tiles;
  const auto* a = static_cast<const char*>(p.a);
  const auto* panel = static_cast<const char*>(p.panel);
  for (std::int64_t row = 0; row < p.rows; row += 2 * kTile) {
    const std::int64_t rows = std::min(2 * kTile, p.rows - row);
    tiles.configure(std::min(rows, kTile), rows - std::min(rows, kTile));
    const TileRows lines{a + 4 * row * p.row_stride, 4 * p.row_stride, kTileBytes,
                         4 * kTile * p.row_stride};
    float* const out = p.out + row * p.out_stride;
    if (p.columns == kPanelColumns) {
      multiply_rows<Tiles>(rows, lines, panel, p.steps, p.accumulate, out, p.out_stride, [] {});
      continue;
    }
    alignas(64) float sums[2 * kTile * kPanelColumns] = {};
    if (p.accumulate) copy_sums(out, p.out_stride, sums, kPanelColumns, rows, p.columns);
    multiply_rows<Tiles>(rows, lines, panel, p.steps, p.accumulate, sums, kPanelColumns, [] {});
    copy_sums(sums, kPanelColumns, out, p.out_stride, rows, p.columns);
  }
}

template <class Tiles>
void run_tile_unit(const GemmArguments& g, const GemmPlan& plan, std::int64_t unit,
                   void* workspace);

template <class Tiles>
MicroKernel amx_micro_kernel() {
  return {.type = Type::bf16,
          .needs_packed_rows = true,
          .multiple = kTile,
          .rows = 2 * kTile,
          .pack = pack_pairs_in_tiles,
          .copy = copy_pairs_in_tiles,
          .multiply = multiply_in_tiles<Tiles>,
          .begin = Tiles::begin,
          .end = Tiles::end,
          .run_unit = run_tile_unit<Tiles>};
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
