// What the measured times of a schedule's steps come to, in the words of its simulation.
#pragma once

#include <optional>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// A stretch of a step that computes, or the wait for a receive; a send takes no time. Joined steps
/// overlap: both count with a part of it, a backward with twice that of a forward.
struct TimedStep {
  ScheduleStep step;
  StepSpan span;                        ///< any clock that all ranks share
  std::optional<double> posted_s = {};  ///< of a message: when it was under way
};
using StepTimes = std::vector<std::vector<TimedStep>>;  ///< of each rank

/// Busy is what a rank computes, waits excluded. Times count from the first step of any rank.
PipelineTimes pipeline_times(const StepTimes& ranks);

/// Seconds in which a rank computed steps of each kind; together it was busy.
struct KindSeconds {
  double forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
};
KindSeconds seconds_by_kind(const std::vector<TimedStep>& rank);

/// What each step took on average, stage by stage: with these costs every rank is as busy in a
/// simulation as it was. Where a stage never computes W on its own, all of its backward is input
/// gradients. The times are those of one whole pass.
CostModel mean_costs(const Schedule& schedule, const StepTimes& ranks);

}  // namespace megatron
