// Computes the figures of a simulation from the measured times of a schedule's steps.
#pragma once

#include <optional>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// The span of a computing step or of the wait for a receive; a send takes no time. Joined steps
/// overlap, and the time is divided between them: a backward counts twice as much as a forward.
struct TimedStep {
  ScheduleStep step;
  StepSpan span;                        ///< On any clock that all ranks share.
  std::optional<double> posted_s = {};  ///< Time when a message was posted.
};
using StepTimes = std::vector<std::vector<TimedStep>>;  ///< Per rank.

/// Returns the pipeline's times, counted from the first step of any rank. Waits are not busy time.
PipelineTimes pipeline_times(const StepTimes& ranks);

/// Seconds in which a rank computed steps of each kind. Their sum is its busy time.
struct KindSeconds {
  double forward = 0, backward = 0, backward_input = 0, backward_weight = 0;
};
KindSeconds seconds_by_kind(const std::vector<TimedStep>& rank);

/// Returns the mean time of each kind of step per stage, over one whole pass. A simulation with
/// these costs has the measured busy times. Where a stage never computes W on its own, all of its
/// backward counts as input gradients.
CostModel mean_costs(const Schedule& schedule, const StepTimes& ranks);

}  // namespace megatron
