// What the measured times of a schedule's steps come to, in the words of its simulation.
#pragma once

#include <optional>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// A stretch of a step that computes (several, when it took turns with another), or the wait for a receive; a send takes no time.
struct TimedStep {
  ScheduleStep step;
  StepSpan span;                        ///< any clock that all ranks share
  std::optional<double> posted_s = {};  ///< of a message: when it was under way
};
using StepTimes = std::vector<std::vector<TimedStep>>;  ///< of each rank

/// Busy is what a rank computes, waits excluded. Times count from the first step of any rank.
PipelineTimes pipeline_times(const StepTimes& ranks);

/// What each step took on average, stage by stage: with these costs every rank is as busy in a simulation as it was. Where a stage never computes W
/// on its own, all of its backward is input gradients. The times are those of one whole pass.
CostModel mean_costs(const Schedule& schedule, const StepTimes& ranks);

}  // namespace megatron
