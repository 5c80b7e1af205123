// The steps of a rank that take time, as both drawings need them.
#pragma once

#include <string>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

struct DrawnStep {
  ScheduleStep step;
  double begin_s = 0, end_s = 0;
  bool is_joined = false;  ///< One of two joined steps that share the same time span.
};

/// Returns the computing steps of `rank` with their times in `run`.
std::vector<DrawnStep> drawn_steps(const Schedule& schedule, const Simulation& run,
                                   std::size_t rank);

/// Returns the kinds of computing steps that occur in the schedule, in order.
std::vector<StepKind> kinds_of(const Schedule& schedule);

/// Returns a title such as "zb-v: 4 ranks, 2 chunks each, 8 microbatches".
std::string title_of(const Schedule& schedule);

/// Returns a distance between axis ticks, at least `least`: 1, 2 or 5 times a power of ten.
double tick_distance(double least);

}  // namespace megatron
