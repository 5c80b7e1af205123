#include "kernels/cpu/tile_gemm_plan.h"

#include <unistd.h>

#include <algorithm>
#include <array>

namespace megatron::kernels {
namespace {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) { return divide_up(a, b) * b; }

/// Returns the bytes of the packed operand that stays. Half of the L2 cache is left to the other
/// operand, the result and what the hardware prefetches.
std::int64_t bytes_that_stay() { return l2_cache_bytes() / 2; }

/// Costs in cycles, measured on a Xeon with AMX at about 3 GHz.
constexpr double kTileCycles = 90;       ///< of 32 rows by a panel, 16 steps deep
constexpr double kSumCycles = 110;       ///< of such a block's sums, read and written in L2
constexpr double kCopyCycles = 6;        ///< of packing 16 steps of a row or column
constexpr double kTransposeCycles = 10;  ///< of packing them from lines across depth
constexpr double kHiddenShare = 0.4;     ///< of packing beside multiplications that costs time

/// More units than this for each thread balance nothing.
constexpr std::int64_t kMaxUnitsPerThread = 8;
/// Steps of a pass that are tried; 0 is the whole depth.
constexpr std::array<std::int64_t, 6> kPassSteps{0, 1024, 768, 512, 384, 256};

double cost_of(const GemmPlan& plan, const GemmArguments& g, std::int64_t threads) {
  const double tiles = static_cast<double>(divide_up(plan.steps_each, kTile) * plan.passes),
               blocks = static_cast<double>(divide_up(plan.rows_each, 2 * kTile)),
               panels = static_cast<double>(plan.panels_each),
               row_cycles = (g.a_depth_stride == 1 ? kCopyCycles : kTransposeCycles) *
                            static_cast<double>(plan.rows_each) * tiles,
               panel_cycles = (g.b_depth_stride == 1 ? kTransposeCycles : kCopyCycles) *
                              kPanelColumns * panels * tiles;
  const double sums = static_cast<double>(plan.passes - 1) * kSumCycles;
  const double unit = blocks * panels * (tiles * kTileCycles + sums) +
                      row_cycles * (plan.rows_stay ? 1 : kHiddenShare) +
                      panel_cycles * (plan.rows_stay ? kHiddenShare : 1);
  return static_cast<double>(divide_up(plan.units(), threads)) * unit;
}

/// Returns the bytes of a row or column, `steps` deep.
std::int64_t line_bytes(std::int64_t steps) { return 4 * steps; }

/// Returns the next number of 1, 2, 3, 4, 6, 8, 12, 16 …
std::int64_t next_count(std::int64_t count) {
  return count < 4 ? count + 1 : count % 3 == 0 ? count / 3 * 4 : count / 2 * 3;
}

}  // namespace

std::int64_t l2_cache_bytes() {
#if defined(_SC_LEVEL2_CACHE_SIZE)
  static const std::int64_t bytes = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
#else
  static const std::int64_t bytes = 0;
#endif
  return bytes > 0 ? bytes : std::int64_t{1} << 20;
}

std::int64_t panels_of_streaming_unit(std::int64_t panels, std::int64_t threads) {
  constexpr std::int64_t kMaxTurns = 4;
  std::int64_t best = panels, least = panels;
  for (std::int64_t turns = kMaxTurns; turns > 0; --turns) {
    const std::int64_t each = divide_up(panels, turns * threads),
                       busiest = each * divide_up(divide_up(panels, each), threads);
    if (busiest >= least && turns < kMaxTurns) continue;
    best = each;
    least = busiest;
  }
  return best;
}

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
  const std::int64_t steps = round_up(g.k, 2 * kTile) / 2, panels = divide_up(g.n, kPanelColumns),
                     max_units = kMaxUnitsPerThread * threads;
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
  const std::int64_t all_rows = round_up(g.m, 2 * kTile);
  const bool streams = g.b_packed_columns > 0 && g.m <= kTileBlockRows &&
                       line_bytes(steps) * all_rows <= bytes_that_stay();
  if (streams) consider(all_rows, panels_of_streaming_unit(panels, threads), steps, true);
  for (const std::int64_t pass_steps : kPassSteps) {
    if (streams || pass_steps >= steps) continue;
    const std::int64_t passes = pass_steps == 0 ? 1 : divide_up(steps, pass_steps),
                       steps_each = passes == 1
                                        ? steps
                                        : round_up(divide_up(steps, passes), kTileBlockSteps),
                       lines = std::max(bytes_that_stay() / line_bytes(steps_each), kPanelColumns);
    for (std::int64_t parts = 1; parts <= max_units; parts = next_count(parts)) {
      const std::int64_t most_rows = round_up(divide_up(g.m, parts), 2 * kTile);
      for (std::int64_t cuts = 1; parts * cuts <= max_units; cuts = next_count(cuts)) {
        const std::int64_t most_panels = divide_up(panels, cuts),
                           panels_each = std::min(most_panels, lines / kPanelColumns);
        if (passes == 1) {
          consider(std::min(most_rows, lines / (2 * kTile) * 2 * kTile), most_panels, steps, true);
          consider(most_rows, panels_each, steps, false);
        } else {
          // The sums of all rows wait for the next pass in the L2 cache.
          const std::int64_t row_bytes = 4 * panels_each * kPanelColumns,
                             rows = l2_cache_bytes() / row_bytes / kTileBlockRows * kTileBlockRows;
          consider(std::min(most_rows, std::max(rows, kTileBlockRows)), panels_each, steps_each,
                   false);
        }
        if (most_panels == 1) break;
      }
      if (most_rows == 2 * kTile) break;
    }
  }
  const TileWorkspace space = tile_workspace(best);
  best.workspace_bytes = space.row_bytes + space.panel_bytes + space.sum_bytes;
  return best;
}

}  // namespace megatron::kernels
