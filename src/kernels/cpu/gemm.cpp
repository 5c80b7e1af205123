// A unit is a range of rows by a group of panels. For each block of depth its panels are packed once into this thread's memory, where they serve all
// rows of the unit; a is read as it lies where that is possible, and packed in blocks of rows elsewhere.
#include "kernels/cpu/gemm.h"

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/gemm_rows.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kRowsOfABlock = 96;               ///< of a: 96 KiB, together with a panel they fit the second cache
constexpr std::int64_t kRowsOfAUnit = 1032;              ///< whole groups of kPanelRows; sums of a unit stay below 3.1 MiB
constexpr std::int64_t kPanelsOfAUnit = 24;              ///< rows are brought once for so many
constexpr std::int64_t kPackedRows = 48;                 ///< rows that are transposed side by side
constexpr std::int64_t kCopiedSteps = kDepthSteps + 16;  ///< between copied rows: an odd number of cache lines, so that rows share no set

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return divide_up(a, b) * b; }

const char* at(const void* base, Type type, std::int64_t element) { return static_cast<const char*>(base) + element * size_of(type); }
char* at(void* base, Type type, std::int64_t element) { return static_cast<char*>(base) + element * size_of(type); }

/// Whether rows of a only have to be copied: else they are transposed.
bool lies_along_depth(const GemmArguments& g) { return g.a_depth_stride == 1 || g.k == 1; }

/// Sums start in the result itself where that is f32.
bool sums_in_place(const GemmArguments& g) { return g.out_type == Type::f32; }

/// Bytes of a block of depth of one panel.
std::int64_t panel_bytes(const GemmArguments& g) { return 4 * std::min(kDepthSteps, panel_product(g.type).steps_of(g.k)) * kPanelColumns; }

std::int64_t row_bytes(const GemmPlan& plan) { return 4 * kCopiedSteps * round_up(std::min(plan.rows_each, kRowsOfABlock), kPackedRows); }
std::int64_t sum_stride(const GemmPlan& plan) { return plan.panels_each * kPanelColumns; }

/// One unit: rows [row, row + rows) by panels from column on.
class Unit {
 public:
  Unit(const GemmArguments& g, const GemmPlan& plan, std::int64_t index, void* workspace)
      : g_(g),
        product_(panel_product(g.type)),
        panel_bytes_(panel_bytes(g)),
        copies_rows_(product_.reads_lines || lies_along_depth(g)),
        row_(index % plan.row_parts * plan.rows_each),
        rows_(std::min(plan.rows_each, g.m - row_)),
        column_(index / plan.row_parts * plan.panels_each * kPanelColumns),
        columns_(std::min(plan.panels_each * kPanelColumns, g.n - column_)) {
    auto* bytes = static_cast<char*>(workspace);
    panels_ = bytes;
    packed_rows_ = panels_ + plan.panels_each * panel_bytes_;
    if (sums_in_place(g)) {
      sums_ = static_cast<float*>(g.out) + row_ * g.out_stride + column_;
      sums_stride_ = g.out_stride;
    } else {
      sums_ = reinterpret_cast<float*>(packed_rows_ + row_bytes(plan));
      sums_stride_ = sum_stride(plan);
    }
  }

  void run() {
    const std::int64_t depth_block = product_.type == Type::bf16 ? 2 * kDepthSteps : kDepthSteps;
    for (std::int64_t depth = 0; depth < g_.k; depth += depth_block) {
      const std::int64_t count = std::min(depth_block, g_.k - depth);
      pack_panels(depth, count);
      for (std::int64_t row = 0; row < rows_; row += kRowsOfABlock) {
        const std::int64_t rows = std::min(kRowsOfABlock, rows_ - row);
        multiply_rows(row, rows, depth, count);
        if (depth + count == g_.k) finish(row, rows);
      }
    }
  }

 private:
  void pack_panels(std::int64_t depth, std::int64_t count) {
    product_.pack({.from = at(g_.b, g_.type, depth * g_.b_depth_stride + column_ * g_.b_column_stride),
                   .type = g_.type,
                   .depth_stride = g_.b_depth_stride,
                   .cross_stride = g_.b_column_stride,
                   .depth = count,
                   .count = columns_,
                   .to = panels_,
                   .to_stride = kPanelColumns,
                   .panel_stride = panel_bytes_});
  }

  /// Brings a block of rows into this thread's memory: copied, or transposed in groups.
  void bring_rows(std::int64_t row, std::int64_t rows, std::int64_t depth, std::int64_t count) {
    const PackArguments pack{.from = at(g_.a, g_.type, (row_ + row) * g_.a_row_stride + depth * g_.a_depth_stride),
                             .type = g_.type,
                             .depth_stride = g_.a_depth_stride,
                             .cross_stride = g_.a_row_stride,
                             .depth = count,
                             .count = rows,
                             .to = packed_rows_,
                             .to_stride = copies_rows_ ? kCopiedSteps : kPackedRows,
                             .panel_stride = 4 * kDepthSteps * kPackedRows};
    copies_rows_ ? product_.copy(pack) : product_.pack(pack);
  }

  void multiply_rows(std::int64_t row, std::int64_t rows, std::int64_t depth, std::int64_t count) {
    bring_rows(row, rows, depth, count);
    const std::int64_t each = copies_rows_ ? rows : kPackedRows;
    for (std::int64_t c = 0; c < columns_; c += kPanelColumns) {
      for (std::int64_t r = 0; r < rows; r += each) {
        product_.multiply({.a = packed_rows_ + 4 * kDepthSteps * r,
                           .row_stride = copies_rows_ ? kCopiedSteps : 1,
                           .step_stride = copies_rows_ ? 1 : kPackedRows,
                           .panel = panels_ + c / kPanelColumns * panel_bytes_,
                           .out = sums_ + (row + r) * sums_stride_ + c,
                           .out_stride = sums_stride_,
                           .rows = std::min(each, rows - r),
                           .columns = std::min(kPanelColumns, columns_ - c),
                           .steps = product_.steps_of(count),
                           .accumulate = depth > 0 || (sums_in_place(g_) && g_.accumulate)});
      }
    }
  }

  /// While the sums are in the cache.
  void finish(std::int64_t row, std::int64_t rows) {
    if (sums_in_place(g_) && g_.bias == nullptr) return;
    finish_gemm_rows({.sums = sums_ + row * sums_stride_,
                      .sums_stride = sums_stride_,
                      .bias = g_.bias != nullptr ? at(g_.bias, g_.type, column_) : nullptr,
                      .bias_type = g_.type,
                      .out = at(g_.out, g_.out_type, (row_ + row) * g_.out_stride + column_),
                      .out_type = g_.out_type,
                      .out_stride = g_.out_stride,
                      .rows = rows,
                      .columns = columns_,
                      .accumulate = g_.accumulate && !sums_in_place(g_)});
  }

  const GemmArguments& g_;
  const PanelProduct& product_;
  std::int64_t panel_bytes_;
  bool copies_rows_;
  std::int64_t row_, rows_, column_, columns_;
  char *panels_, *packed_rows_;
  float* sums_;
  std::int64_t sums_stride_;
};

/// The time of the busiest thread: multiplications, and what packing adds to them (packing a number costs about as much as eight multiplications).
double cost_of(std::int64_t row_parts, std::int64_t rows, std::int64_t column_parts, std::int64_t panels, std::int64_t threads, bool copies) {
  const double columns = static_cast<double>(panels * kPanelColumns), packing = 8 / static_cast<double>(rows) + (copies ? 1 : 8) / columns;
  return static_cast<double>(divide_up(row_parts * column_parts, threads) * rows) * columns * (1 + packing);
}

}  // namespace

GemmPlan plan_gemm(const GemmArguments& g, std::int64_t threads) {
  const std::int64_t groups = divide_up(g.m, kPanelRows), panels = divide_up(g.n, kPanelColumns);
  const bool copies = panel_product(g.type).reads_lines || lies_along_depth(g);
  const std::int64_t least_column_parts = divide_up(panels, kPanelsOfAUnit);
  GemmPlan best{};
  double least = 0;
  for (std::int64_t row_parts = divide_up(g.m, kRowsOfAUnit); row_parts <= groups; row_parts *= 2) {
    const std::int64_t rows = divide_up(groups, row_parts) * kPanelRows;
    for (std::int64_t parts = least_column_parts; parts <= std::min(panels, least_column_parts + 2 * threads); ++parts) {
      const std::int64_t each = divide_up(panels, parts);
      const double cost = cost_of(row_parts, rows, parts, each, threads, copies);
      if (best.row_parts != 0 && cost >= least) continue;
      least = cost;
      best = {divide_up(groups * kPanelRows, rows), rows, divide_up(panels, each), each, 0};
    }
    if (row_parts >= 4 * threads) break;
  }
  best.workspace_bytes = best.panels_each * panel_bytes(g) + row_bytes(best) + (sums_in_place(g) ? 0 : 4 * best.rows_each * sum_stride(best));
  return best;
}

void run_gemm(const GemmArguments& arguments, const GemmPlan& plan, std::int64_t begin, std::int64_t end, void* workspace) {
  for (std::int64_t unit = begin; unit < end; ++unit) Unit(arguments, plan, unit, workspace).run();
}

}  // namespace megatron::kernels
