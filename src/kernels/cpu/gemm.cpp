// A unit is a range of rows by a group of panels. Its panels are packed once into this thread's memory, as many blocks of depth in one pass as stay
// in the second cache, where they serve all rows of the unit. Where one pass is enough, sums never leave the first cache: a block of rows by a panel
// is finished before the next is begun.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/fetch_ahead.h"
#include "kernels/cpu/gemm_rows.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kRowsOfABlock = 48;        ///< of a, at least: brought together
constexpr std::int64_t kTransposedRows = 96;      ///< of a block, at least, that are transposed side by side: from whole cache lines
constexpr std::int64_t kRowsOfACall = 24;         ///< at least, and so few that what is fetched ahead between two calls does not queue
constexpr std::int64_t kRowsOfAUnit = 1056;       ///< whole blocks
constexpr std::int64_t kBlocksOfAPass = 8;        ///< of depth, at most
constexpr std::int64_t kPanelBytes = 768 * 1024;  ///< of a unit's panels: they stay in the second cache

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

bool lies_along_depth(const GemmArguments& g) { return g.a_depth_stride == 1 || g.k == 1; }

/// Whether rows of a have to be made of columns: else they are read where they lie, or copied.
bool is_transposed(const GemmArguments& g, const PanelProduct& product) { return !product.reads_lines && !lies_along_depth(g); }

/// Whole groups of the rows that the product works on at a time.
std::int64_t whole_groups(std::int64_t rows, const PanelProduct& product) { return divide_up(rows, product.rows) * product.rows; }
std::int64_t rows_of_a_block(const GemmArguments& g, const PanelProduct& product) {
  return whole_groups(is_transposed(g, product) ? kTransposedRows : kRowsOfABlock, product);
}

/// Whether the product reads rows of a where they lie. At a multiple of 4 KiB the rows of a tile would push each other out of the first cache.
bool reads_in_place(const GemmArguments& g, const PanelProduct& product) {
  const std::int64_t row_bytes = g.a_row_stride * size_of(g.type), depth_bytes = g.k * size_of(g.type);
  const bool has_whole_steps = reinterpret_cast<std::uintptr_t>(g.a) % 4 == 0 && row_bytes % 4 == 0 && depth_bytes % 4 == 0;
  return lies_along_depth(g) && g.type == product.type && !product.reads_lines && has_whole_steps && row_bytes % 4096 != 0;
}

/// Sums start in the result itself where that is f32.
bool sums_in_place(const GemmArguments& g) { return g.out_type == Type::f32; }

/// Steps from a copied row to the next: an odd number of cache lines, so that rows share no set.
std::int64_t copied_stride(const GemmPlan& plan) { return (divide_up(plan.steps_each, 16) | 1) * 16; }

std::int64_t panel_bytes(const GemmPlan& plan) { return 4 * plan.steps_each * kPanelColumns; }
std::int64_t block_bytes(const GemmArguments& g, const GemmPlan& plan, const PanelProduct& product) {
  return 4 * copied_stride(plan) * rows_of_a_block(g, product);
}

/// Between rows of sums: one panel's at a time where a pass finishes them, else those of the unit.
std::int64_t sum_stride(const GemmPlan& plan) { return plan.passes == 1 ? kPanelColumns : plan.panels_each * kPanelColumns; }
std::int64_t sum_bytes(const GemmArguments& g, const GemmPlan& plan, const PanelProduct& product) {
  return 4 * sum_stride(plan) * (plan.passes == 1 ? rows_of_a_block(g, product) : plan.rows_each);
}

/// How the product reads a; its strides are in steps.
struct RowsOfA {
  enum { in_place, copied, transposed } are;
  std::int64_t row_stride, step_stride;
};

RowsOfA rows_of_a(const GemmArguments& g, const GemmPlan& plan, const PanelProduct& product) {
  if (reads_in_place(g, product)) return {RowsOfA::in_place, g.a_row_stride * size_of(g.type) / 4, 1};
  if (is_transposed(g, product)) return {RowsOfA::transposed, 1, rows_of_a_block(g, product)};
  return {RowsOfA::copied, copied_stride(plan), 1};
}

/// One unit: rows [row, row + rows) by panels from column on.
class Unit {
 public:
  Unit(const GemmArguments& g, const GemmPlan& plan, std::int64_t index, void* workspace)
      : g_(g),
        plan_(plan),
        product_(panel_product(g.type)),
        block_rows_(rows_of_a_block(g, product_)),
        call_rows_(whole_groups(kRowsOfACall, product_)),
        rows_of_a_(rows_of_a(g, plan, product_)),
        sum_stride_(sums_in_place(g) ? g.out_stride : sum_stride(plan)),
        row_(index % plan.row_parts * plan.rows_each),
        rows_(std::min(plan.rows_each, g.m - row_)),
        column_(index / plan.row_parts * plan.panels_each * kPanelColumns),
        columns_(std::min(plan.panels_each * kPanelColumns, g.n - column_)),
        panels_(static_cast<char*>(workspace)),
        packed_rows_(panels_ + plan.panels_each * panel_bytes(plan)),
        sums_(reinterpret_cast<float*>(packed_rows_ + block_bytes(g, plan, product_))) {}

  void run() {
    const std::int64_t depth_of_pass = product_.type == Type::bf16 ? 2 * plan_.steps_each : plan_.steps_each;
    for (std::int64_t depth = 0; depth < g_.k; depth += depth_of_pass) {
      const Pass pass{.depth = depth, .count = std::min(depth_of_pass, g_.k - depth), .is_last = depth + depth_of_pass >= g_.k};
      pack_panels(pass);
      for (std::int64_t row = 0; row < rows_; row += block_rows_) {
        const std::int64_t rows = std::min(block_rows_, rows_ - row);
        const char* const a = bring_rows(pass, row, rows);
        FetchAhead next = lines_after(pass, row);
        next.share_among(divide_up(columns_, kPanelColumns) * calls_of(pass, rows));
        for (std::int64_t c = 0; c < columns_; c += kPanelColumns) multiply(pass, {a, row, rows, c, std::min(kPanelColumns, columns_ - c)}, next);
      }
    }
  }

 private:
  /// A range of depth of which all panels are packed.
  struct Pass {
    std::int64_t depth, count;
    bool is_last;
  };
  /// Rows of a block by a panel; within the unit. They are read from `a` on.
  struct Tile {
    const char* a;
    std::int64_t row, rows, column, columns;
  };

  void pack_panels(const Pass& pass) {
    product_.pack({.from = element_at(g_.b, g_.type, pass.depth * g_.b_depth_stride + column_ * g_.b_column_stride),
                   .type = g_.type,
                   .depth_stride = g_.b_depth_stride,
                   .cross_stride = g_.b_column_stride,
                   .depth = pass.count,
                   .count = columns_,
                   .to = panels_,
                   .to_stride = kPanelColumns,
                   .panel_stride = panel_bytes(plan_)});
  }

  /// Where a block of rows is read: unless that is where they lie, they are copied or transposed into this thread's memory.
  const char* bring_rows(const Pass& pass, std::int64_t row, std::int64_t rows) {
    const char* const first = element_at(g_.a, g_.type, (row_ + row) * g_.a_row_stride + pass.depth * g_.a_depth_stride);
    if (rows_of_a_.are == RowsOfA::in_place) return first;
    const bool copies = rows_of_a_.are == RowsOfA::copied;
    const PackArguments pack{.from = first,
                             .type = g_.type,
                             .depth_stride = g_.a_depth_stride,
                             .cross_stride = g_.a_row_stride,
                             .depth = pass.count,
                             .count = rows,
                             .to = packed_rows_,
                             .to_stride = copies ? rows_of_a_.row_stride : rows_of_a_.step_stride};
    copies ? product_.copy(pack) : product_.pack(pack);
    return packed_rows_;
  }

  /// What the next block of rows is made of, in this pass.
  FetchAhead lines_after(const Pass& pass, std::int64_t row) const {
    row += block_rows_;
    if (row >= rows_) return {};
    const std::int64_t rows = std::min(block_rows_, rows_ - row), size = size_of(g_.type);
    const char* first = element_at(g_.a, g_.type, (row_ + row) * g_.a_row_stride + pass.depth * g_.a_depth_stride);
    return lies_along_depth(g_) ? FetchAhead(first, rows, g_.a_row_stride * size, pass.count * size)
                                : FetchAhead(first, pass.count, g_.a_depth_stride * size, rows * size);
  }

  /// What a panel's results will be written to by this pass.
  FetchAhead lines_of_results(const Pass& pass, const Tile& tile) const {
    if (!pass.is_last || ends_in_sums()) return {};  // sums are fetched by the product
    const std::int64_t size = size_of(g_.out_type);
    return FetchAhead(result(tile), tile.rows, g_.out_stride * size, tile.columns * size);
  }

  /// Of the product, for a block of rows by a panel.
  std::int64_t calls_of(const Pass& pass, std::int64_t rows) const {
    return divide_up(rows, call_rows_) * divide_up(product_.steps_of(pass.count), kDepthSteps);
  }

  void multiply(const Pass& pass, const Tile& tile, FetchAhead& next) {
    const std::int64_t steps = product_.steps_of(pass.count);
    const char* panel = panels_ + tile.column / kPanelColumns * panel_bytes(plan_);
    float* sums = sums_of(tile);
    FetchAhead results = lines_of_results(pass, tile);
    results.share_among(calls_of(pass, tile.rows));
    for (std::int64_t step = 0; step < steps; step += kDepthSteps) {  // a block of a panel serves all rows while it is in the first cache
      for (std::int64_t row = 0; row < tile.rows; row += call_rows_) {
        next.fetch_share();
        results.fetch_share();
        product_.multiply({.a = tile.a + 4 * (step * rows_of_a_.step_stride + row * rows_of_a_.row_stride),
                           .row_stride = rows_of_a_.row_stride,
                           .step_stride = rows_of_a_.step_stride,
                           .panel = panel + 4 * step * kPanelColumns,
                           .out = sums + row * sum_stride_,
                           .out_stride = sum_stride_,
                           .rows = std::min(call_rows_, tile.rows - row),
                           .columns = tile.columns,
                           .steps = std::min(kDepthSteps, steps - step),
                           .accumulate = pass.depth > 0 || step > 0 || (sums_in_place(g_) && g_.accumulate)});
      }
    }
    if (pass.is_last && !ends_in_sums()) finish(tile, sums);
  }

  float* sums_of(const Tile& tile) const {
    if (sums_in_place(g_)) return reinterpret_cast<float*>(result(tile));
    return plan_.passes == 1 ? sums_ : sums_ + tile.row * sum_stride_ + tile.column;
  }

  char* result(const Tile& tile) const { return element_at(g_.out, g_.out_type, (row_ + tile.row) * g_.out_stride + column_ + tile.column); }

  /// Whether the sums are the result.
  bool ends_in_sums() const { return sums_in_place(g_) && g_.bias == nullptr; }

  /// While the sums are in the first cache.
  void finish(const Tile& tile, const float* sums) const {
    finish_gemm_rows({.sums = sums,
                      .sums_stride = sum_stride_,
                      .bias = g_.bias != nullptr ? element_at(g_.bias, g_.type, column_ + tile.column) : nullptr,
                      .bias_type = g_.type,
                      .out = result(tile),
                      .out_type = g_.out_type,
                      .out_stride = g_.out_stride,
                      .rows = tile.rows,
                      .columns = tile.columns,
                      .accumulate = g_.accumulate && !sums_in_place(g_)});
  }

  const GemmArguments& g_;
  const GemmPlan& plan_;
  const PanelProduct& product_;
  std::int64_t block_rows_, call_rows_;
  RowsOfA rows_of_a_;
  std::int64_t sum_stride_;
  std::int64_t row_, rows_, column_, columns_;
  char *panels_, *packed_rows_;
  float* sums_;
};

/// The time of the busiest thread in multiplications, with what packing and sums between passes add to them, in multiplications too: as measured, 24
/// for a number that is packed, 40 for a sum that another pass goes on with (20 in f32, where multiplications take twice as long).
double cost_of(const GemmPlan& plan, const GemmArguments& g, std::int64_t threads) {
  const double rows = static_cast<double>(plan.rows_each), columns = static_cast<double>(plan.panels_each * kPanelColumns);
  const double depth = static_cast<double>(g.k) / static_cast<double>(plan.passes);
  const double extra = 24 / rows + 24 / columns + (plan.passes > 1 ? (g.type == Type::bf16 ? 40 : 20) / depth : 0);
  return static_cast<double>(divide_up(plan.units(), threads)) * rows * columns * (1 + extra);
}

}  // namespace

GemmPlan plan_gemm(const GemmArguments& g, std::int64_t threads) {
  const PanelProduct& product = panel_product(g.type);
  const std::int64_t groups = divide_up(g.m, kPanelRows), panels = divide_up(g.n, kPanelColumns);
  const std::int64_t steps = product.steps_of(g.k), blocks = divide_up(steps, kDepthSteps);
  GemmPlan best{};
  double least = 0;
  for (std::int64_t blocks_each = 1; blocks_each <= std::min(blocks, kBlocksOfAPass); ++blocks_each) {
    const std::int64_t passes = divide_up(blocks, blocks_each), steps_each = std::min(blocks_each * kDepthSteps, steps);
    const std::int64_t least_column_parts = divide_up(panels, std::max<std::int64_t>(1, kPanelBytes / (4 * steps_each * kPanelColumns)));
    for (std::int64_t row_parts = divide_up(g.m, kRowsOfAUnit); row_parts <= groups; row_parts *= 2) {
      const std::int64_t rows = divide_up(groups, row_parts) * kPanelRows;
      for (std::int64_t parts = least_column_parts; parts <= std::min(panels, least_column_parts + 2 * threads); ++parts) {
        const std::int64_t each = divide_up(panels, parts);
        const GemmPlan plan{divide_up(groups * kPanelRows, rows), rows, divide_up(panels, each), each, passes, steps_each, 0};
        const double cost = cost_of(plan, g, threads);
        if (best.row_parts != 0 && cost >= least) continue;
        least = cost;
        best = plan;
      }
      if (row_parts >= 4 * threads) break;
    }
  }
  best.workspace_bytes = best.panels_each * panel_bytes(best) + block_bytes(g, best, product) + (sums_in_place(g) ? 0 : sum_bytes(g, best, product));
  return best;
}

void run_gemm(const GemmArguments& arguments, const GemmPlan& plan, std::int64_t begin, std::int64_t end, void* workspace) {
  for (std::int64_t unit = begin; unit < end; ++unit) Unit(arguments, plan, unit, workspace).run();
}

}  // namespace megatron::kernels
