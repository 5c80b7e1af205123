// Simulates a schedule with given step times: its duration and its activation memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Costs of one stage for one microbatch. A step of kind backward takes backward_input +
/// backward_weight.
struct StageCost {
  double forward_s = 1, backward_input_s = 1, backward_weight_s = 1;
  double activation = 1;       ///< What a forward keeps for its backward, in any unit.
  double weight_gradient = 1;  ///< The part of it that is kept from B until W.
  /// Returns the time of forward and backward.
  double total_s() const { return forward_s + backward_input_s + backward_weight_s; }
};

struct CostModel {
  std::vector<StageCost> stages;  ///< p·v stages.
  double message_s = 0;  ///< From the end of a step until its result arrives on another rank.
  double joined = 1;     ///< Time of a joined forward and backward, relative to their sum.
};

/// Returns a cost model in which all stages are alike.
CostModel uniform_costs(const Schedule& schedule, const StageCost& stage = {},
                        double message_s = 0);

struct StepSpan {
  double begin_s = 0, end_s = 0;
};

/// The times of a pipeline, simulated or measured (step_times.h).
struct PipelineTimes {
  double makespan_s = 0;
  /// For each rank: computing time, begin of its first and end of its last computing step.
  std::vector<double> busy_s, first_s, last_s;

  /// Returns 1 − busy ÷ makespan: the share of the makespan in which the rank does not compute,
  /// including the time before its first and after its last computing step.
  double bubble(std::int64_t rank) const;
  /// Returns the bubble of all ranks together: 1 − Σ busy ÷ (p · makespan).
  double total_bubble() const;
};

struct Simulation : PipelineTimes {
  /// For every step of every rank; for a message, the time when it is posted.
  std::vector<std::vector<StepSpan>> spans;
  std::vector<double> peak_activation;  ///< Per rank, in the unit of StageCost.
};

/// Runs the steps of each rank in order, each as soon as its inputs are available. The schedule
/// must have messages and be valid (validate_schedule()).
Simulation simulate(const Schedule& schedule, const CostModel& costs);
/// Simulates a schedule that may be invalid. Returns nothing when ranks deadlock.
std::optional<Simulation> try_simulate(const Schedule& schedule, const CostModel& costs);

}  // namespace megatron
