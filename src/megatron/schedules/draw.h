// Pictures of a schedule in time: for a terminal, and as SVG.
#pragma once

#include <string>

#include "megatron/schedules/simulate.h"

namespace megatron {

struct DrawOptions {
  int width = 100;  ///< columns; a longer schedule goes on in a further block of rows
  bool colour = false;
};

/// One row per rank, time from left to right, each step as wide as it is long with the number of
/// its microbatch; then what the ranks do and keep.
std::string draw_text(const Schedule& schedule, const Simulation& run,
                      const DrawOptions& options = {});

/// For each rank: busy, bubble and peak activations; then the makespan and the bubble of all
/// together.
std::string draw_table(const Simulation& run);

/// A page of its own: steps coloured by kind and shaded by chunk, with a tooltip each.
std::string draw_svg(const Schedule& schedule, const Simulation& run);

}  // namespace megatron
