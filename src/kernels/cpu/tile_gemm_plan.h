// How a GEMM is cut for tile registers (tile_gemm.h). One operand of a unit is packed once and
// stays in the L2 cache. The other is packed a piece at a time, while the piece before is
// multiplied.
#pragma once

#include "kernels/cpu/gemm.h"

namespace megatron::kernels {

/// Rows and steps of a tile.
inline constexpr std::int64_t kTile = 16;
/// Number of rows whose sums stay in the L1 cache beside a block of a panel.
inline constexpr std::int64_t kTileBlockRows = 128;
/// Number of steps of a block of a panel in the L1 cache.
inline constexpr std::int64_t kTileBlockSteps = 128;

/// Returns the bytes of a core's L2 cache, or 1 MiB where the system does not report them.
std::int64_t l2_cache_bytes();

/// Returns the panels of a unit where the panels are packed already and serve few rows, so that all
/// threads end at the same time.
std::int64_t panels_of_streaming_unit(std::int64_t panels, std::int64_t threads);

/// Returns the fastest plan by an estimate of the busiest thread's cycles. If plan.rows_stay, its
/// rows stay in the L2 cache, and otherwise its panels.
GemmPlan plan_tile_gemm(const GemmArguments& arguments, std::int64_t threads);

/// The parts of a thread's workspace: packed rows, packed panels and sums.
struct TileWorkspace {
  std::int64_t row_bytes, panel_bytes, sum_bytes;
};
TileWorkspace tile_workspace(const GemmPlan& plan);

}  // namespace megatron::kernels
