// A unit of a GEMM is a range of rows by a group of panels. A thread packs the panels of a unit
// once into its own workspace. One pass packs as many blocks of depth as stay in the L2 cache,
// where they serve all rows of the unit. When one pass is enough, sums never leave the L1 cache: a
// block of rows by a panel is finished before the next begins.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/gemm_epilogue.h"
#include "kernels/cpu/l2_prefetcher.h"
#include "kernels/cpu/tile_gemm_plan.h"

namespace megatron::kernels {
namespace {

using portable::L2Prefetcher;

/// A block has at least this many rows of a, which are copied together.
constexpr std::int64_t kMinBlockRows = 48;
/// A block has at least this many rows when they are transposed, so that whole cache lines are
/// read.
constexpr std::int64_t kMinTransposedRows = 96;
/// A micro-kernel call has at least this many rows. More would queue too many prefetches
/// between two calls.
constexpr std::int64_t kMinMicroKernelRows = 24;
constexpr std::int64_t kMaxUnitRows = 1056;  ///< whole blocks
/// Upper limit of the blocks of depth in one pass.
constexpr std::int64_t kMaxBlocksPerPass = 8;
/// Upper limit of the panels of a unit, which must stay in the L2 cache.
constexpr std::int64_t kMaxPanelBytes = 768 * 1024;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool is_depth_contiguous(const GemmArguments& g) { return g.a_depth_stride == 1 || g.k == 1; }

/// Returns whether columns of a must be transposed into rows. Otherwise rows are read in place or
/// copied.
bool is_transposed(const GemmArguments& g, const MicroKernel& micro_kernel) {
  return !micro_kernel.needs_packed_rows && !is_depth_contiguous(g);
}

/// Rounds up to whole groups of the rows that the micro-kernel processes at a time.
std::int64_t round_up_to_tile(std::int64_t rows, const MicroKernel& micro_kernel) {
  return divide_up(rows, micro_kernel.rows) * micro_kernel.rows;
}
std::int64_t block_rows(const GemmArguments& g, const MicroKernel& micro_kernel) {
  return round_up_to_tile(is_transposed(g, micro_kernel) ? kMinTransposedRows : kMinBlockRows,
                          micro_kernel);
}

/// Returns whether the micro-kernel reads rows of a in place. Rows at a distance of a multiple of 4
/// KiB are copied, because they would evict each other from the L1 cache.
bool reads_in_place(const GemmArguments& g, const MicroKernel& micro_kernel) {
  const std::int64_t row_bytes = g.a_row_stride * size_of(g.type),
                     depth_bytes = g.k * size_of(g.type);
  const bool has_whole_steps =
      reinterpret_cast<std::uintptr_t>(g.a) % 4 == 0 && row_bytes % 4 == 0 && depth_bytes % 4 == 0;
  return is_depth_contiguous(g) && g.type == micro_kernel.type && !micro_kernel.needs_packed_rows &&
         has_whole_steps && row_bytes % 4096 != 0;
}

/// Returns whether the micro-kernel reads the packed columns of b where they are. With more rows
/// than a block, panels of a pass are copied, so that they stay in the L2 cache.
bool reads_packed(const GemmArguments& g, const MicroKernel& micro_kernel) {
  return g.b_packed_columns > 0 && g.type == micro_kernel.type && g.m <= kMinBlockRows;
}

/// Returns the number of panels that the workspace has room for.
std::int64_t workspace_panels(const GemmArguments& g, const GemmPlan& plan,
                              const MicroKernel& micro_kernel) {
  return reads_packed(g, micro_kernel) ? 1 : plan.panels_each;
}

/// Returns whether the sums accumulate in the result itself, which must then be f32.
bool accumulates_in_place(const GemmArguments& g) { return g.out_type == Type::f32; }

/// Returns the steps between copied rows. It is an odd number of cache lines, so that rows share no
/// cache set.
std::int64_t copied_stride(const GemmPlan& plan) {
  return (divide_up(plan.steps_each, 16) | 1) * 16;
}

/// Returns the bytes between panels. Five more cache lines keep neighbours out of one cache set,
/// when a line of b is packed into all of them.
std::int64_t panel_bytes(const GemmPlan& plan) {
  return 4 * plan.steps_each * kPanelColumns + 5 * 64;
}

/// Returns the depth of a pass; the last one may have less.
std::int64_t pass_depth(const GemmPlan& plan, const MicroKernel& micro_kernel) {
  return micro_kernel.type == Type::bf16 ? 2 * plan.steps_each : plan.steps_each;
}

std::int64_t block_bytes(const GemmArguments& g, const GemmPlan& plan,
                         const MicroKernel& micro_kernel) {
  return 4 * copied_stride(plan) * block_rows(g, micro_kernel);
}

/// Returns the stride between rows of sums. If a pass finishes its sums, they cover one panel,
/// otherwise the whole unit.
std::int64_t sum_stride(const GemmPlan& plan) {
  return plan.passes == 1 ? kPanelColumns : plan.panels_each * kPanelColumns;
}
std::int64_t sum_bytes(const GemmArguments& g, const GemmPlan& plan,
                       const MicroKernel& micro_kernel) {
  return 4 * sum_stride(plan) * (plan.passes == 1 ? block_rows(g, micro_kernel) : plan.rows_each);
}

/// Describes how the micro-kernel reads a. Strides are in steps.
struct OperandA {
  enum { in_place, copied, transposed } are;
  std::int64_t row_stride, step_stride;
};

OperandA operand_a(const GemmArguments& g, const GemmPlan& plan, const MicroKernel& micro_kernel) {
  if (reads_in_place(g, micro_kernel))
    return {OperandA::in_place, g.a_row_stride * size_of(g.type) / 4, 1};
  if (is_transposed(g, micro_kernel)) return {OperandA::transposed, 1, block_rows(g, micro_kernel)};
  return {OperandA::copied, copied_stride(plan), 1};
}

/// A part of b: `count` depths from `depth` on, and `columns` columns from `column` on.
struct PartOfB {
  std::int64_t depth, count, column, columns;
};

UpcomingLines lines_of_panels(const GemmArguments& g, const PartOfB& part) {
  const std::int64_t size = size_of(g.type);
  if (part.column < g.b_packed_columns)
    return UpcomingLines(element_at(g.b, g.type, part.column * g.k + part.depth * kPanelColumns),
                         divide_up(part.columns, kPanelColumns), kPanelColumns * g.k * size,
                         kPanelColumns * part.count * size);
  const char* const first =
      element_at(g.b, g.type, part.depth * g.b_depth_stride + part.column * g.b_column_stride);
  return g.b_depth_stride == 1
             ? UpcomingLines(first, part.columns, g.b_column_stride * size, part.count * size)
             : UpcomingLines(first, part.count, g.b_depth_stride * size, part.columns * size);
}

/// Computes one unit: rows [row, row + rows) by the panels that begin at `column`.
class GemmUnit {
 public:
  GemmUnit(const GemmArguments& g, const GemmPlan& plan, std::int64_t index, void* workspace,
           UpcomingLines* upcoming)
      : g_(g),
        plan_(plan),
        upcoming_(upcoming),
        micro_kernel_(gemm_micro_kernel(g.type)),
        block_rows_(block_rows(g, micro_kernel_)),
        call_rows_(round_up_to_tile(kMinMicroKernelRows, micro_kernel_)),
        operand_a_(operand_a(g, plan, micro_kernel_)),
        sum_stride_(accumulates_in_place(g) ? g.out_stride : sum_stride(plan)),
        row_(index % plan.row_parts * plan.rows_each),
        rows_(std::min(plan.rows_each, g.m - row_)),
        column_(index / plan.row_parts * plan.panels_each * kPanelColumns),
        columns_(std::min(plan.panels_each * kPanelColumns, g.n - column_)),
        packed_(std::clamp<std::int64_t>(g.b_packed_columns - column_, 0, columns_)),
        read_in_place_(reads_packed(g, micro_kernel_) ? packed_ : 0),
        panels_(static_cast<char*>(workspace)),
        packed_rows_(panels_ + workspace_panels(g, plan, micro_kernel_) * panel_bytes(plan)),
        sums_(reinterpret_cast<float*>(packed_rows_ + block_bytes(g, plan, micro_kernel_))) {}

  void run() {
    begin_stream();
    const std::int64_t depth_of_pass = pass_depth(plan_, micro_kernel_);
    for (std::int64_t depth = 0; depth < g_.k; depth += depth_of_pass) {
      const Pass pass{.depth = depth,
                      .count = std::min(depth_of_pass, g_.k - depth),
                      .is_last = depth + depth_of_pass >= g_.k};
      pack_panels(pass);
      UpcomingLines next_pass = lines_of_pass(depth + depth_of_pass);
      UpcomingLines* const upcoming = pass.is_last ? upcoming_ : &next_pass;
      for (std::int64_t row = 0; row < rows_; row += block_rows_) {
        const std::int64_t rows = std::min(block_rows_, rows_ - row);
        const char* const a = bring_rows(pass, row, rows);
        L2Prefetcher next = lines_after(pass, row);
        next.divide_into(divide_up(columns_, kPanelColumns) * calls_of(pass, rows));
        for (std::int64_t c = 0; c < columns_; c += kPanelColumns) {
          const Tile tile{a, row, rows, c, std::min(kPanelColumns, columns_ - c)};
          UpcomingLines sums = sums_after(pass, tile);
          multiply(pass, tile, next, sums.runs > 0 ? &sums : upcoming);
        }
      }
    }
  }

 private:
  /// A range of depth whose panels are packed at the same time.
  struct Pass {
    std::int64_t depth, count;
    bool is_last;
  };
  /// Rows of a block by a panel, relative to the unit. The rows are read from `a`.
  struct Tile {
    const char* a;
    std::int64_t row, rows, column, columns;
  };

  void pack_panels(const Pass& pass) {
    PackArguments pack{.from = nullptr,
                       .type = g_.type,
                       .depth_stride = kPanelColumns,
                       .cross_stride = 1,
                       .depth = pass.count,
                       .count = kPanelColumns,
                       .to = nullptr,
                       .to_stride = kPanelColumns,
                       .panel_stride = panel_bytes(plan_)};
    for (std::int64_t c = read_in_place_; c < packed_; c += kPanelColumns) {
      pack.from = packed_panel(pass, c);
      pack.to = workspace_panel(c);
      if (micro_kernel_.type == g_.type) {
        std::memcpy(pack.to, pack.from,
                    static_cast<std::size_t>(pass.count * kPanelColumns * size_of(g_.type)));
      } else {
        micro_kernel_.pack(pack);
      }
    }
    if (packed_ == columns_) return;
    pack.from = element_at(
        g_.b, g_.type, pass.depth * g_.b_depth_stride + (column_ + packed_) * g_.b_column_stride);
    pack.depth_stride = g_.b_depth_stride;
    pack.cross_stride = g_.b_column_stride;
    pack.count = columns_ - packed_;
    pack.to = workspace_panel(packed_);
    micro_kernel_.pack(pack);
  }

  /// Returns the panel that is packed in place at a column of the unit.
  const char* packed_panel(const Pass& pass, std::int64_t column) const {
    return element_at(g_.b, g_.type, (column_ + column) * g_.k + pass.depth * kPanelColumns);
  }
  char* workspace_panel(std::int64_t column) const {
    return panels_ + (column - read_in_place_) / kPanelColumns * panel_bytes(plan_);
  }

  /// Prefetches the first panels that are read in place. The micro-kernel continues in the order of
  /// memory, which is that of reading when there is one pass.
  void begin_stream() {
    if (read_in_place_ == 0 || plan_.passes > 1) return;
    const char* const first = element_at(g_.b, g_.type, column_ * g_.k);
    stream_end_ = first + read_in_place_ * g_.k * size_of(g_.type);
    for (std::int64_t byte = 0; byte < std::min(kPanelAhead, stream_end_ - first); byte += 64)
      __builtin_prefetch(first + byte);
  }

  /// Returns what the pass from `depth` on packs, if there is one.
  UpcomingLines lines_of_pass(std::int64_t depth) const {
    if (read_in_place_ > 0) return {};
    const std::int64_t count = std::min(pass_depth(plan_, micro_kernel_), g_.k - depth);
    return count > 0 ? lines_of_panels(g_, {depth, count, column_, columns_}) : UpcomingLines();
  }

  /// Returns where to read a block of rows. Unless they are read in place, copies or transposes
  /// them into this thread's workspace.
  const char* bring_rows(const Pass& pass, std::int64_t row, std::int64_t rows) {
    const char* const first =
        element_at(g_.a, g_.type, (row_ + row) * g_.a_row_stride + pass.depth * g_.a_depth_stride);
    if (operand_a_.are == OperandA::in_place) return first;
    const bool copies = operand_a_.are == OperandA::copied;
    const PackArguments pack{.from = first,
                             .type = g_.type,
                             .depth_stride = g_.a_depth_stride,
                             .cross_stride = g_.a_row_stride,
                             .depth = pass.count,
                             .count = rows,
                             .to = packed_rows_,
                             .to_stride = copies ? operand_a_.row_stride : operand_a_.step_stride};
    copies ? micro_kernel_.copy(pack) : micro_kernel_.pack(pack);
    return packed_rows_;
  }

  /// Prefetches the next block of rows of this pass.
  L2Prefetcher lines_after(const Pass& pass, std::int64_t row) const {
    row += block_rows_;
    if (row >= rows_) return {};
    const std::int64_t rows = std::min(block_rows_, rows_ - row), size = size_of(g_.type);
    const char* first =
        element_at(g_.a, g_.type, (row_ + row) * g_.a_row_stride + pass.depth * g_.a_depth_stride);
    return is_depth_contiguous(g_)
               ? L2Prefetcher(first, rows, g_.a_row_stride * size, pass.count * size)
               : L2Prefetcher(first, pass.count, g_.a_depth_stride * size, rows * size);
  }

  /// Prefetches the part of the result that this pass will write for a panel.
  L2Prefetcher lines_of_results(const Pass& pass, const Tile& tile) const {
    if (!pass.is_last || ends_in_sums()) return {};  // the micro-kernel itself prefetches sums
    const std::int64_t size = size_of(g_.out_type);
    return L2Prefetcher(result(tile), tile.rows, g_.out_stride * size, tile.columns * size);
  }

  /// Returns the sums in memory that the next tile adds to or overwrites, when a tile has so few
  /// steps that the micro-kernel cannot prefetch its own in time.
  UpcomingLines sums_after(const Pass& pass, Tile tile) const {
    if (!accumulates_in_place(g_) || micro_kernel_.steps_of(pass.count) >= kMinStepsToPrefetchOut)
      return {};
    tile.column += kPanelColumns;
    if (tile.column >= columns_) tile = {nullptr, tile.row + block_rows_, block_rows_, 0, 0};
    if (tile.row >= rows_) return {};
    const std::int64_t rows = std::min(tile.rows, rows_ - tile.row),
                       columns = std::min(kPanelColumns, columns_ - tile.column);
    return UpcomingLines(result(tile), rows, 4 * g_.out_stride, 4 * columns);
  }

  /// Returns the number of micro-kernel calls for a block of rows by a panel.
  std::int64_t calls_of(const Pass& pass, std::int64_t rows) const {
    return divide_up(rows, call_rows_) *
           divide_up(micro_kernel_.steps_of(pass.count), kDepthBlockSteps);
  }

  void multiply(const Pass& pass, const Tile& tile, L2Prefetcher& next, UpcomingLines* upcoming) {
    const std::int64_t steps = micro_kernel_.steps_of(pass.count);
    const char* const panel = tile.column < read_in_place_ ? packed_panel(pass, tile.column)
                                                           : workspace_panel(tile.column);
    float* sums = sums_of(tile);
    L2Prefetcher results = lines_of_results(pass, tile);
    results.divide_into(calls_of(pass, tile.rows));
    // A block of a panel serves all rows while it is in the L1 cache.
    for (std::int64_t step = 0; step < steps; step += kDepthBlockSteps) {
      const std::int64_t count = std::min(kDepthBlockSteps, steps - step);
      const char* const block = panel + 4 * step * kPanelColumns;
      const bool streams = stream_end_ != nullptr && tile.column < read_in_place_ &&
                           tile.row == 0 && stream_end_ - block >= 2 * 4 * count * kPanelColumns;
      for (std::int64_t row = 0; row < tile.rows; row += call_rows_) {
        next.prefetch_share();
        results.prefetch_share();
        micro_kernel_.multiply(
            {.a = tile.a + 4 * (step * operand_a_.step_stride + row * operand_a_.row_stride),
             .row_stride = operand_a_.row_stride,
             .step_stride = operand_a_.step_stride,
             .panel = block,
             .out = sums + row * sum_stride_,
             .out_stride = sum_stride_,
             .rows = std::min(call_rows_, tile.rows - row),
             .columns = tile.columns,
             .steps = count,
             .accumulate =
                 pass.depth > 0 || step > 0 || (accumulates_in_place(g_) && g_.accumulate),
             .upcoming = upcoming,
             .streams_panel = streams && row == 0});
      }
    }
    if (pass.is_last && !ends_in_sums()) finish(tile, sums);
  }

  float* sums_of(const Tile& tile) const {
    if (accumulates_in_place(g_)) return reinterpret_cast<float*>(result(tile));
    return plan_.passes == 1 ? sums_ : sums_ + tile.row * sum_stride_ + tile.column;
  }

  char* result(const Tile& tile) const {
    return element_at(g_.out, g_.out_type,
                      (row_ + tile.row) * g_.out_stride + column_ + tile.column);
  }

  /// Returns whether the sums are the final result.
  bool ends_in_sums() const { return accumulates_in_place(g_) && g_.bias == nullptr; }

  /// Runs the epilogue while the sums are in the L1 cache.
  void finish(const Tile& tile, const float* sums) const {
    gemm_epilogue_kernels().finish(
        {.sums = sums,
         .sums_stride = sum_stride_,
         .bias = g_.bias != nullptr ? element_at(g_.bias, g_.type, column_ + tile.column) : nullptr,
         .bias_type = g_.type,
         .out = result(tile),
         .out_type = g_.out_type,
         .out_stride = g_.out_stride,
         .rows = tile.rows,
         .columns = tile.columns,
         .accumulate = g_.accumulate && !accumulates_in_place(g_)});
  }

  const GemmArguments& g_;
  const GemmPlan& plan_;
  UpcomingLines* upcoming_;
  const MicroKernel& micro_kernel_;
  std::int64_t block_rows_, call_rows_;
  OperandA operand_a_;
  std::int64_t sum_stride_;
  std::int64_t row_, rows_, column_, columns_;
  std::int64_t packed_;         ///< columns that are packed in place
  std::int64_t read_in_place_;  ///< those of them that the micro-kernel reads there
  const char* stream_end_ = nullptr;
  char *panels_, *packed_rows_;
  float* sums_;
};

/// Estimates the time of the busiest thread in multiplications. It includes measured costs of
/// packing and of sums between passes: 24 for each packed number, and 40 for each sum that another
/// pass continues (20 in f32, where multiplications take twice as long).
double cost_of(const GemmPlan& plan, const GemmArguments& g, std::int64_t threads) {
  const double rows = static_cast<double>(plan.rows_each),
               columns = static_cast<double>(plan.panels_each * kPanelColumns);
  const double depth = static_cast<double>(g.k) / static_cast<double>(plan.passes);
  const double extra =
      24 / rows + 24 / columns + (plan.passes > 1 ? (g.type == Type::bf16 ? 40 : 20) / depth : 0);
  return static_cast<double>(divide_up(plan.units(), threads)) * rows * columns * (1 + extra);
}

/// Plans a GEMM whose packed columns serve one block of rows: they stream from memory.
GemmPlan streaming_plan(const GemmArguments& g, std::int64_t panels, std::int64_t steps,
                        std::int64_t threads) {
  const std::int64_t each = panels_of_streaming_unit(panels, threads);
  return {1, divide_up(g.m, kPanelRows) * kPanelRows, divide_up(panels, each), each, 1, steps, 0};
}

}  // namespace

std::int64_t columns_packed_in_place(Type type, std::int64_t columns, std::int64_t depth) {
  const MicroKernel& micro_kernel = gemm_micro_kernel(type);
  const bool fits =
      micro_kernel.type != type || 4 * micro_kernel.steps_of(depth) == depth * size_of(type);
  return fits ? columns / kPanelColumns * kPanelColumns : 0;
}

void pack_in_place(Type type, void* columns, std::int64_t depth, void* workspace) {
  const MicroKernel& micro_kernel = gemm_micro_kernel(type);
  const std::int64_t count = depth * kPanelColumns;
  if (micro_kernel.type == type) {
    micro_kernel.pack({columns, type, 1, depth, depth, kPanelColumns, workspace, kPanelColumns});
  } else {
    const auto* const from = static_cast<const std::uint16_t*>(columns);
    auto* const to = static_cast<std::uint16_t*>(workspace);
    for (std::int64_t i = 0; i < count; ++i) to[i % depth * kPanelColumns + i / depth] = from[i];
  }
  std::memcpy(columns, workspace, static_cast<std::size_t>(count * size_of(type)));
}

GemmPlan plan_gemm(const GemmArguments& g, std::int64_t threads) {
  const MicroKernel& micro_kernel = gemm_micro_kernel(g.type);
  if (micro_kernel.run_unit != nullptr) return plan_tile_gemm(g, threads);
  const std::int64_t groups = divide_up(g.m, kPanelRows), panels = divide_up(g.n, kPanelColumns);
  const std::int64_t steps = micro_kernel.steps_of(g.k),
                     blocks = divide_up(steps, kDepthBlockSteps);
  GemmPlan best{};
  double least = 0;
  const bool streams = reads_packed(g, micro_kernel);
  if (streams) best = streaming_plan(g, panels, steps, threads);
  for (std::int64_t blocks_each = 1; !streams && blocks_each <= std::min(blocks, kMaxBlocksPerPass);
       ++blocks_each) {
    const std::int64_t passes = divide_up(blocks, blocks_each),
                       steps_each = std::min(blocks_each * kDepthBlockSteps, steps);
    const std::int64_t least_column_parts = divide_up(
        panels, std::max<std::int64_t>(1, kMaxPanelBytes / (4 * steps_each * kPanelColumns)));
    for (std::int64_t row_parts = divide_up(g.m, kMaxUnitRows); row_parts <= groups;
         row_parts *= 2) {
      const std::int64_t rows = divide_up(groups, row_parts) * kPanelRows;
      for (std::int64_t parts = least_column_parts;
           parts <= std::min(panels, least_column_parts + 2 * threads); ++parts) {
        const std::int64_t each = divide_up(panels, parts);
        const GemmPlan plan{divide_up(groups * kPanelRows, rows),
                            rows,
                            divide_up(panels, each),
                            each,
                            passes,
                            steps_each,
                            0};
        const double cost = cost_of(plan, g, threads);
        if (best.row_parts != 0 && cost >= least) continue;
        least = cost;
        best = plan;
      }
      if (row_parts >= 4 * threads) break;
    }
  }
  best.workspace_bytes = workspace_panels(g, best, micro_kernel) * panel_bytes(best) +
                         block_bytes(g, best, micro_kernel) +
                         (accumulates_in_place(g) ? 0 : sum_bytes(g, best, micro_kernel));
  return best;
}

void run_gemm(const GemmArguments& arguments, const GemmPlan& plan, std::int64_t begin,
              std::int64_t end, void* workspace, UpcomingLines* upcoming) {
  const auto run_unit = gemm_micro_kernel(arguments.type).run_unit;
  for (std::int64_t unit = begin; unit < end; ++unit)
    run_unit != nullptr ? run_unit(arguments, plan, unit, workspace)
                        : GemmUnit(arguments, plan, unit, workspace, upcoming).run();
}

UpcomingLines lines_to_pack(const GemmArguments& g, const GemmPlan& plan, std::int64_t unit) {
  const MicroKernel& micro_kernel = gemm_micro_kernel(g.type);
  if (micro_kernel.run_unit != nullptr || reads_packed(g, micro_kernel)) return {};
  const std::int64_t column = unit / plan.row_parts * plan.panels_each * kPanelColumns;
  return lines_of_panels(g, {.depth = 0,
                             .count = std::min(pass_depth(plan, micro_kernel), g.k),
                             .column = column,
                             .columns = std::min(plan.panels_each * kPanelColumns, g.n - column)});
}

}  // namespace megatron::kernels
