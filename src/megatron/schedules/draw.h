// Draws a schedule over time, for a terminal and as SVG.
#pragma once

#include <string>

#include "megatron/schedules/simulate.h"

namespace megatron {

struct DrawOptions {
  int width = 100;  ///< Columns; a longer schedule continues in further blocks of rows.
  bool colour = false;
};

/// Draws one row per rank, with time from left to right and the microbatch number in each step. A
/// table of busy time, bubble and peak activations follows.
std::string draw_text(const Schedule& schedule, const Simulation& run,
                      const DrawOptions& options = {});

/// Formats a table with the busy time, bubble and peak activations of each rank, and the makespan
/// and total bubble.
std::string draw_table(const Simulation& run);

/// Draws a standalone SVG. Steps are coloured by kind, shaded by chunk, and have tooltips.
std::string draw_svg(const Schedule& schedule, const Simulation& run);

}  // namespace megatron
