// How long a schedule takes and what it keeps, for given times of its steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Of one stage and one microbatch. A step of kind backward takes backward_input + backward_weight.
struct StageCost {
  double forward_s = 1, backward_input_s = 1, backward_weight_s = 1;
  double activation = 1;       ///< what a forward keeps for its backward, in any unit
  double weight_gradient = 1;  ///< what of it is kept from B until W
};

struct CostModel {
  std::vector<StageCost> stages;  ///< p·v of them
  double message_s = 0;  ///< from the end of a step until its result is there on another rank
  double joined = 1;     ///< a joined forward and backward take this times the sum of both
};

/// Every stage alike.
CostModel uniform_costs(const Schedule& schedule, const StageCost& stage = {},
                        double message_s = 0);

struct StepSpan {
  double begin_s = 0, end_s = 0;
};

/// How long a pipeline took, simulated or measured (step_times.h).
struct PipelineTimes {
  double makespan_s = 0;
  std::vector<double> busy_s, first_s,
      last_s;  ///< of each rank: computing, begin of its first and end of its last computing step

  /// The share of the step in which the rank computes nothing, also before its first and after its
  /// last computing step: 1 − busy ÷ makespan.
  double bubble(std::int64_t rank) const;
  /// The same of all ranks together: 1 − Σ busy ÷ (p · makespan).
  double total_bubble() const;
};

struct Simulation : PipelineTimes {
  std::vector<std::vector<StepSpan>>
      spans;  ///< of every step of every rank; of a message, when it is posted
  std::vector<double> peak_activation;  ///< of each rank, in the unit of StageCost
};

/// Ranks run their steps in order, each as soon as what it needs is there. The schedule has
/// messages and is valid (validate_schedule).
Simulation simulate(const Schedule& schedule, const CostModel& costs);
/// The same of a table that may not be valid: none when ranks wait for each other for ever.
std::optional<Simulation> try_simulate(const Schedule& schedule, const CostModel& costs);

}  // namespace megatron
