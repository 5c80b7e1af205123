// GEMMs in tile registers. A multiplication of tiles takes 16 cycles and one instruction, which
// leaves the CPU's other units idle: they pack the next operands and round the last sums meanwhile.
#pragma once

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/gemm_epilogue.h"
#include "kernels/cpu/micro_kernel_amx.h"
#include "kernels/cpu/tile_gemm_plan.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// Packs 16 columns of a panel, 16 steps deep. Columns past `p.count` and steps past depth are
/// zero.
inline void pack_half_panel(const PackArguments& p, std::uint32_t* to) {
  if (p.depth == 2 * kTile && p.count == kTile && p.cross_stride % 2 == 0)
    return transpose_tile(static_cast<const std::uint32_t*>(p.from), p.cross_stride / 2, to,
                          kPanelColumns);
  alignas(64) std::uint32_t rows[kTile * kTile] = {};
  pack_tile(p, rows, kTile);
  transpose_tile(rows, kTile, to, kPanelColumns);
}

/// Packs an operand a tile of depth at a time: rows as strips of 16, each of them tiles along
/// depth, or columns as panels. Strips or panels go round a ring of `ring` places.
class TilePacking {
 public:
  TilePacking() = default;
  /// `p.to_stride` is the steps of a strip for rows, and kPanelColumns for panels. `p.panel_stride`
  /// is the bytes of a place of the ring.
  TilePacking(const PackArguments& p, bool is_rows, std::int64_t ring)
      : p_(p),
        is_rows_(is_rows),
        ring_(ring),
        // Lines along depth are read to their end, as the L2 cache's prefetcher expects it. Of
        // lines across depth a whole cache line is read.
        width_(p.depth_stride == 1 ? kTile : kPanelColumns),
        tiles_each_((p.depth + 2 * kTile - 1) / (2 * kTile)),
        count_((p.count + width_ - 1) / width_ * tiles_each_) {}

  /// Sets how many rows or columns must be packed next, and returns the number of tiles left until
  /// then.
  std::int64_t aim_at(std::int64_t lines) {
    aim_ = std::min(count_, (lines + width_ - 1) / width_ * tiles_each_);
    return aim_ - next_;
  }

  void pack_one() {
    prefetch(std::min(next_ + kAhead, count_ - 1));
    const PackArguments part = part_of(next_);
    const std::int64_t line = next_ / tiles_each_ * width_, step = next_ % tiles_each_ * kTile,
                       place = line / (is_rows_ ? kTile : kPanelColumns) % ring_;
    char* const to = static_cast<char*>(p_.to) + place * p_.panel_stride;
    if (is_rows_) {
      for (std::int64_t r = 0; r < part.count; r += kTile)
        pack_tile(tile_of(part, r, 0),
                  reinterpret_cast<std::uint32_t*>(to + r / kTile * p_.panel_stride) + step * kTile,
                  kTile);
    } else if (width_ == kTile) {
      pack_half_panel(
          part, reinterpret_cast<std::uint32_t*>(to) + step * kPanelColumns + line % kPanelColumns);
    } else {
      PackArguments panel = part;
      panel.to = to + 4 * step * kPanelColumns;
      pack_pairs_in_tiles(panel);
    }
    ++next_;
  }
  bool is_done() const { return next_ >= aim_; }
  void pack_all() {
    while (!is_done()) pack_one();
  }
  void pack_until(std::int64_t lines) {
    aim_at(lines);
    pack_all();
  }

 private:
  /// Number of tiles that are prefetched ahead.
  static constexpr std::int64_t kAhead = 16;

  PackArguments part_of(std::int64_t index) const {
    return tile_of(p_, index / tiles_each_ * width_, index % tiles_each_ * kTile, width_);
  }
  void prefetch(std::int64_t index) const {
    const PackArguments part = part_of(index);
    const bool along = part.depth_stride == 1;
    const std::int64_t lines = along ? part.count : part.depth,
                       stride = 2 * (along ? part.cross_stride : part.depth_stride);
    for (std::int64_t i = 0; i < lines; ++i)
      __builtin_prefetch(static_cast<const char*>(part.from) + i * stride, 0, 2);
  }

  PackArguments p_{};
  bool is_rows_ = false;
  std::int64_t ring_ = 1, width_ = 1, tiles_each_ = 1, count_ = 0, next_ = 0, aim_ = 0;
};

/// Runs the epilogue of a block of sums, some rows at a time.
template <class Tiles>
class TileFinishing {
 public:
  TileFinishing() = default;
  explicit TileFinishing(const GemmEpilogue& epilogue)
      : e_(epilogue), left_(epilogue.rows), finish_(gemm_epilogue_kernels().finish) {}

  /// Prefetches the part of the result that the next `count` rows will be written to.
  void prefetch_rows(std::int64_t count) {
    const std::int64_t size = size_of(e_.out_type), end = std::min(e_.rows, prefetched_ + count);
    for (; prefetched_ < end; ++prefetched_) {
      const char* const row = static_cast<char*>(e_.out) + prefetched_ * e_.out_stride * size;
      for (std::int64_t byte = 0; byte < e_.columns * size; byte += 64)
        __builtin_prefetch(row + byte, 1, 2);
      __builtin_prefetch(row + e_.columns * size - 1, 1, 2);  // lines need not be aligned
    }
  }

  void finish_rows(std::int64_t count) {
    e_.rows = std::min(count, left_);
    if (e_.rows == 0) return;
    if (e_.out_type == Type::bf16 && e_.bias == nullptr && !e_.accumulate &&
        e_.columns == kPanelColumns) {
      Tiles::round_rows(e_.sums, e_.rows, static_cast<std::uint16_t*>(e_.out), e_.out_stride);
    } else {
      finish_(e_);
    }
    e_.sums += e_.rows * e_.sums_stride;
    e_.out = static_cast<char*>(e_.out) + e_.rows * e_.out_stride * size_of(e_.out_type);
    left_ -= e_.rows;
  }

 private:
  GemmEpilogue e_{};
  std::int64_t left_ = 0, prefetched_ = 0;
  void (*finish_)(const GemmEpilogue&) = nullptr;
};

/// Computes one unit of a plan: rows [row, row + rows) by the panels that begin at `column`.
template <class Tiles>
class TileUnit {
 public:
  TileUnit(const GemmArguments& g, const GemmPlan& plan, std::int64_t index, void* workspace)
      : g_(g),
        plan_(plan),
        row_(index % plan.row_parts * plan.rows_each),
        rows_(std::min(plan.rows_each, g.m - row_)),
        column_(index / plan.row_parts * plan.panels_each * kPanelColumns),
        columns_(std::min(plan.panels_each * kPanelColumns, g.n - column_)),
        packed_(std::clamp<std::int64_t>(g.b_packed_columns - column_, 0, columns_)),
        panel_bytes_(4 * plan.steps_each * kPanelColumns),
        strip_bytes_(4 * plan.steps_each * kTile) {
    const TileWorkspace space = tile_workspace(plan);
    auto* const first = static_cast<char*>(workspace);
    packed_rows_ = first;
    packed_panels_ = first + space.row_bytes;
    sums_ = reinterpret_cast<float*>(packed_panels_ + space.panel_bytes);
  }

  void run() {
    begin_stream();
    const bool is_one_block = rows_ <= 2 * kTile;
    tiles_.configure(is_one_block ? std::min(rows_, kTile) : kTile,
                     is_one_block ? std::max<std::int64_t>(rows_ - kTile, 0) : kTile);
    const std::int64_t depth_of_pass = 2 * plan_.steps_each;
    for (std::int64_t depth = 0; depth < g_.k; depth += depth_of_pass) {
      pass_ = {.depth = depth,
               .count = std::min(depth_of_pass, g_.k - depth),
               .is_last = depth + depth_of_pass >= g_.k};
      plan_.rows_stay ? run_panel_by_panel() : run_block_by_block();
    }
    finishing_.finish_rows(rows_);
  }

 private:
  using Finishing = TileFinishing<Tiles>;

  /// A range of depth.
  struct Pass {
    std::int64_t depth, count;
    bool is_last;
  };

  void run_panel_by_panel() {
    packing_of_rows(strips_of(rows_)).pack_until(rows_);
    packing_ = packing_of_panels(2);
    packing_.pack_until(kPanelColumns - packed_);
    for (std::int64_t c = 0; c < columns_; c += kPanelColumns) {
      pace_packing(c + 2 * kPanelColumns - packed_, tiles_of(rows_, 2 * kTile));
      for (std::int64_t r = 0; r < rows_; r += kTileBlockRows)
        multiply(packed_rows_ + r / kTile * strip_bytes_, r, std::min(kTileBlockRows, rows_ - r),
                 panel_at(c, 2), c);
      packing_.pack_all();
    }
  }

  void run_block_by_block() {
    packing_of_panels(plan_.panels_each).pack_until(columns_ - packed_);
    constexpr std::int64_t kStrips = kTileBlockRows / kTile;
    packing_ = packing_of_rows(2 * kStrips);
    packing_.pack_until(kTileBlockRows);
    for (std::int64_t r = 0; r < rows_; r += kTileBlockRows) {
      const std::int64_t rows = std::min(kTileBlockRows, rows_ - r);
      pace_packing(r + 2 * kTileBlockRows,
                   tiles_of(rows, 2 * kTile) * tiles_of(columns_, kPanelColumns));
      for (std::int64_t c = 0; c < columns_; c += kPanelColumns)
        multiply(packed_rows_ + r / kTile % (2 * kStrips) * strip_bytes_, r, rows,
                 panel_at(c, plan_.panels_each), c);
      packing_.pack_all();
    }
  }

  static std::int64_t tiles_of(std::int64_t count, std::int64_t each) {
    return (count + each - 1) / each;
  }
  static std::int64_t strips_of(std::int64_t rows) { return tiles_of(rows, kTile); }

  TilePacking packing_of_rows(std::int64_t ring) const {
    return TilePacking(
        {.from =
             element_at(g_.a, g_.type, row_ * g_.a_row_stride + pass_.depth * g_.a_depth_stride),
         .type = g_.type,
         .depth_stride = g_.a_depth_stride,
         .cross_stride = g_.a_row_stride,
         .depth = pass_.count,
         .count = rows_,
         .to = packed_rows_,
         .to_stride = plan_.steps_each,
         .panel_stride = strip_bytes_},
        /*is_rows=*/true, ring);
  }

  /// Packs the columns that are not packed in place.
  TilePacking packing_of_panels(std::int64_t ring) const {
    return TilePacking({.from = element_at(g_.b, g_.type,
                                           pass_.depth * g_.b_depth_stride +
                                               (column_ + packed_) * g_.b_column_stride),
                        .type = g_.type,
                        .depth_stride = g_.b_depth_stride,
                        .cross_stride = g_.b_column_stride,
                        .depth = pass_.count,
                        .count = columns_ - packed_,
                        .to = packed_panels_,
                        .to_stride = kPanelColumns,
                        .panel_stride = panel_bytes_},
                       /*is_rows=*/false, ring);
  }

  /// Returns the panel that begins at a column of the unit, packed in place or by
  /// packing_of_panels(ring).
  const char* panel_at(std::int64_t column, std::int64_t ring) const {
    if (column < packed_)
      return element_at(g_.b, g_.type, (column_ + column) * g_.k + pass_.depth * kPanelColumns);
    return packed_panels_ + (column - packed_) / kPanelColumns % ring * panel_bytes_;
  }

  /// Prefetches the first panels that are packed in place. Multiplications continue in the order of
  /// memory, which is that of reading when there is one pass: those of the first block of rows if
  /// panels stay, and otherwise of all.
  void begin_stream() {
    if (packed_ == 0 || plan_.passes > 1) return;
    stream_ = element_at(g_.b, g_.type, column_ * g_.k);
    stream_lines_ = packed_ / kPanelColumns * panel_bytes_ / kTileBytes;
    const std::int64_t rows = plan_.rows_stay ? rows_ : std::min(rows_, kTileBlockRows);
    stream_pace_ = tiles_of(kLinesOfTiles, tiles_of(rows, 2 * kTile));
    stream_some(kRunsAtOnce * kLinesOfRun, kRunsAtOnce * kLinesOfRun);
  }
  /// Prefetches up to `lines` lines before line `end`, kRunsAtOnce runs ahead, of which a line each
  /// takes its turn: a core reads several pages at once faster than one.
  void stream_some(std::int64_t lines, std::int64_t end) {
    constexpr std::int64_t kAhead = kRunsAtOnce * kLinesOfRun;
    end = std::min({streamed_ + lines, end, stream_lines_});
    for (; streamed_ < end; ++streamed_) {
      const std::int64_t first = streamed_ / kAhead * kAhead, i = streamed_ - first,
                         line = first + kAhead > stream_lines_
                                    ? streamed_
                                    : first + i % kRunsAtOnce * kLinesOfRun + i / kRunsAtOnce;
      const char* const address = stream_ + line * kTileBytes;
      stream_pace_ == kLinesOfTiles ? __builtin_prefetch(address)
                                    : __builtin_prefetch(address, 0, 2);
    }
  }

  /// Spreads the packing until `lines` over the multiplications of `blocks` blocks of 32 rows by a
  /// panel.
  void pace_packing(std::int64_t lines, std::int64_t blocks) {
    const std::int64_t left = packing_.aim_at(lines),
                       tiles = blocks * tiles_of(pass_.count, 2 * kTile);
    packing_pace_ = left > 0 ? std::max<std::int64_t>(1, tiles / left) : 0;
    until_packing_ = packing_pace_;
  }

  /// Multiplies up to kTileBlockRows rows by a panel, and runs the epilogue of the block before
  /// meanwhile.
  void multiply(const char* a, std::int64_t row, std::int64_t rows, const char* panel,
                std::int64_t column) {
    const std::int64_t steps = tiles_of(pass_.count, 2 * kTile) * kTile;
    float* const sums = sums_of(row, column);
    finishing_pace_ = std::max<std::int64_t>(
        1, steps / kTile * tiles_of(rows, 2 * kTile) * kRowsAtOnce / kTileBlockRows);
    until_finishing_ = finishing_pace_;
    coming_ = pass_.is_last ? finishing_of(row, rows, column, sums) : Finishing();
    // Next are the lines of the panel after this one.
    const std::int64_t stream_end =
        plan_.rows_stay || row == 0
            ? (column / kPanelColumns + 1) * (panel_bytes_ / kTileBytes) + kRunsAtOnce * kLinesOfRun
            : 0;
    // A block of a panel serves all rows while it is in the L1 cache.
    for (std::int64_t step = 0; step < steps; step += kTileBlockSteps) {
      for (std::int64_t r = 0; r < rows; r += 2 * kTile) {
        const auto between = [this, stream_end] {
          if (streamed_ < stream_end) stream_some(stream_pace_, stream_end);
          if (--until_finishing_ == 0) finish_some();
          if (--until_packing_ == 0) pack_some();
        };
        const TileRows lines{a + r / kTile * strip_bytes_ + step / kTile * kTile * kTileBytes,
                             kTileBytes, kTile * kTileBytes, strip_bytes_};
        multiply_rows<Tiles>(rows - r, lines, panel + 4 * step * kPanelColumns,
                             std::min(kTileBlockSteps, steps - step), pass_.depth > 0 || step > 0,
                             sums + r * kPanelColumns, kPanelColumns, between);
      }
    }
    finishing_.finish_rows(kTileBlockRows);
    finishing_ = coming_;
  }

  void finish_some() {
    finishing_.finish_rows(kRowsAtOnce);
    coming_.prefetch_rows(kRowsAtOnce);
    until_finishing_ = finishing_pace_;
  }
  void pack_some() {
    packing_.pack_one();
    until_packing_ = packing_.is_done() ? 0 : packing_pace_;
  }

  /// Returns where the sums of a block are. If a pass finishes them, two blocks take turns.
  float* sums_of(std::int64_t row, std::int64_t column) {
    constexpr std::int64_t kBlock = kTileBlockRows * kPanelColumns;
    if (plan_.passes == 1) return sums_ + (turn_++ % 2) * kBlock;
    return sums_ + (row / kTileBlockRows * plan_.panels_each + column / kPanelColumns) * kBlock;
  }

  Finishing finishing_of(std::int64_t row, std::int64_t rows, std::int64_t column,
                         const float* sums) const {
    const std::int64_t columns = std::min(kPanelColumns, columns_ - column);
    return Finishing(
        {.sums = sums,
         .sums_stride = kPanelColumns,
         .bias = g_.bias != nullptr ? element_at(g_.bias, g_.type, column_ + column) : nullptr,
         .bias_type = g_.type,
         .out = element_at(g_.out, g_.out_type, (row_ + row) * g_.out_stride + column_ + column),
         .out_type = g_.out_type,
         .out_stride = g_.out_stride,
         .rows = rows,
         .columns = columns,
         .accumulate = g_.accumulate});
  }

  /// Number of rows that the epilogue processes at a time.
  static constexpr std::int64_t kRowsAtOnce = 8;
  /// Runs of cache lines that are prefetched at once.
  static constexpr std::int64_t kRunsAtOnce = 4, kLinesOfRun = 128;
  /// Cache lines of the two tiles of a panel.
  static constexpr std::int64_t kLinesOfTiles = 4 * kTile * kPanelColumns / kTileBytes;

  const GemmArguments& g_;
  const GemmPlan& plan_;
  std::int64_t row_, rows_, column_, columns_;
  std::int64_t packed_;  ///< columns that are packed in place
  std::int64_t panel_bytes_, strip_bytes_;
  char *packed_rows_, *packed_panels_;
  float* sums_;
  Tiles tiles_;
  Pass pass_{};
  TilePacking packing_;
  Finishing finishing_, coming_;
  std::int64_t packing_pace_ = 0, until_packing_ = 0, finishing_pace_ = 0, until_finishing_ = 0;
  std::int64_t turn_ = 0;
  const char* stream_ = nullptr;  ///< cache lines to prefetch, and how many of them are
  std::int64_t stream_lines_ = 0, streamed_ = 0, stream_pace_ = 0;
};

template <class Tiles>
void run_tile_unit(const GemmArguments& g, const GemmPlan& plan, std::int64_t unit,
                   void* workspace) {
  TileUnit<Tiles>(g, plan, unit, workspace).run();
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
