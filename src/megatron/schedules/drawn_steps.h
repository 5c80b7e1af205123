// What both drawings start from: the steps of a rank that take time.
#pragma once

#include <string>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

struct DrawnStep {
  ScheduleStep step;
  double begin_s = 0, end_s = 0;
  bool is_joined = false;  ///< one of two steps that run interleaved, in the same stretch of time
};

std::vector<DrawnStep> drawn_steps(const Schedule& schedule, const Simulation& run,
                                   std::size_t rank);

/// The kinds of computing step that the schedule has, in order.
std::vector<StepKind> kinds_of(const Schedule& schedule);

/// "zb-v: 4 ranks, 2 chunks each, 8 microbatches".
std::string title_of(const Schedule& schedule);

/// A distance of 1, 2 or 5 times a power of ten between ticks of an axis, at least `least`.
double tick_distance(double least);

}  // namespace megatron
