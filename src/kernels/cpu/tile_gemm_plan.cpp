#include "kernels/cpu/tile_gemm_plan.h"

#include <algorithm>

#include "kernels/cpu/cache_sizes.h"

namespace megatron::kernels {
namespace {

constexpr std::int64_t kTile = 16;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Returns the bytes of the packed operand that stays. Half of the L2 cache is left to the other
/// operand, the result and what the hardware prefetches.
std::int64_t bytes_that_stay() { return l2_cache_bytes() / 2; }

/// Costs in cycles, measured on CPUs with AMX.
constexpr double kTileCycles = 90;  ///< of 32 rows by a panel, 16 steps deep
constexpr double kSumCycles = 110;  ///< of reading and writing such a block's sums in the L2 cache
constexpr double kFarSumCycles = 900;  ///< and where that cache does not hold them
constexpr double kLineCycles = 6;      ///< of copying 16 steps of a row or column
constexpr double kTurnCycles = 10;     ///< of transposing them too
constexpr double kHidden = 0.4;        ///< share of the packing that costs time when it is hidden

double cost_of(const GemmPlan& plan, const GemmArguments& g, std::int64_t threads) {
  const double tiles = static_cast<double>(divide_up(plan.steps_each, kTile) * plan.passes),
               blocks = static_cast<double>(divide_up(plan.rows_each, 2 * kTile)),
               panels = static_cast<double>(plan.panels_each),
               row_cycles = (g.a_depth_stride == 1 ? kLineCycles : kTurnCycles) *
                            static_cast<double>(plan.rows_each) * tiles,
               panel_cycles = (g.b_depth_stride == 1 ? kTurnCycles : kLineCycles) * kPanelColumns *
                              panels * tiles;
  const bool has_near_sums = tile_workspace(plan).sum_bytes <= l2_cache_bytes();
  const double sums =
      static_cast<double>(plan.passes - 1) * (has_near_sums ? kSumCycles : kFarSumCycles);
  const double unit = blocks * panels * (tiles * kTileCycles + sums) +
                      row_cycles * (plan.rows_stay ? 1 : kHidden) +
                      panel_cycles * (plan.rows_stay ? kHidden : 1);
  return static_cast<double>(divide_up(plan.units(), threads)) * unit;
}

/// Returns the bytes of a row or column, `steps` deep.
std::int64_t line_bytes(std::int64_t steps) { return 4 * steps; }

}  // namespace

TileWorkspace tile_workspace(const GemmPlan& plan) {
  const std::int64_t blocks = divide_up(plan.rows_each, kTileBlockRows),
                     rows = plan.rows_stay ? divide_up(plan.rows_each, 2 * kTile) * 2 * kTile
                                           : 2 * kTileBlockRows,
                     panels = plan.rows_stay ? 2 : plan.panels_each,
                     sums = plan.passes == 1 ? 2 : blocks * plan.panels_each;
  return {.row_bytes = line_bytes(plan.steps_each) * rows,
          .panel_bytes = line_bytes(plan.steps_each) * panels * kPanelColumns,
          .sum_bytes = 4 * sums * kTileBlockRows * kPanelColumns};
}

GemmPlan plan_tile_gemm(const GemmArguments& g, std::int64_t threads) {
  const std::int64_t steps = divide_up(g.k, 2 * kTile) * kTile,
                     panels = divide_up(g.n, kPanelColumns), stay = bytes_that_stay();
  GemmPlan best{};
  double least = 0;
  const auto consider = [&](std::int64_t rows, std::int64_t panels_each, std::int64_t steps_each,
                            bool rows_stay) {
    const GemmPlan plan{.row_parts = divide_up(g.m, rows),
                        .rows_each = rows,
                        .column_parts = divide_up(panels, panels_each),
                        .panels_each = panels_each,
                        .passes = divide_up(steps, steps_each),
                        .steps_each = steps_each,
                        .workspace_bytes = 0,
                        .rows_stay = rows_stay};
    const double cost = cost_of(plan, g, threads);
    if (best.row_parts != 0 && cost >= least) return;
    least = cost;
    best = plan;
  };
  for (std::int64_t passes = 1; passes <= divide_up(steps, kTileBlockSteps); ++passes) {
    const std::int64_t steps_each =
        passes == 1 ? steps
                    : divide_up(divide_up(steps, passes), kTileBlockSteps) * kTileBlockSteps;
    const std::int64_t lines = std::max<std::int64_t>(stay / line_bytes(steps_each), kPanelColumns);
    for (std::int64_t parts = 1; parts <= 16 * threads; parts = parts < 4 ? parts + 1 : parts * 2) {
      const std::int64_t most_rows = divide_up(divide_up(g.m, parts), 2 * kTile) * 2 * kTile;
      for (std::int64_t cuts = 1; cuts <= 16 * threads; cuts = cuts < 4 ? cuts + 1 : cuts * 2) {
        const std::int64_t most_panels = divide_up(panels, cuts);
        if (passes == 1)
          consider(std::min(most_rows, lines / (2 * kTile) * 2 * kTile), most_panels, steps_each,
                   true);
        consider(most_rows, std::min(most_panels, lines / kPanelColumns), steps_each, false);
      }
    }
    if (passes >= 8 && lines > 16 * kPanelColumns) break;
  }
  const TileWorkspace space = tile_workspace(best);
  best.workspace_bytes = space.row_bytes + space.panel_bytes + space.sum_bytes;
  return best;
}

}  // namespace megatron::kernels
