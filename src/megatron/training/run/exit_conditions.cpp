#include "megatron/training/run/exit_conditions.h"

#include "megatron/base/exit_codes.h"
#include "megatron/base/progress_bar.h"
#include "megatron/config/data_phase.h"
#include "megatron/config/training_config.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {

ExitConditions::ExitConditions(const TrainingConfig& training, const RunClock& clock,
                               const JobDeadline* deadline, const Rank& rank)
    : training_(training),
      clock_(clock),
      deadline_(deadline),
      rank_(rank),
      signals_(training.exit_signal, rank.index == 0) {}

ExitConditions::StopCauses ExitConditions::all_reduced_causes() const {
  const std::vector<double> causes =
      all_reduce_max({rank_.world, rank_.device},
                     {static_cast<double>(signals_.received().value_or(0)),
                      duration_is_over() ? 1.0 : 0.0, deadline_is_near() ? 1.0 : 0.0},
                     "exit conditions");
  return {.signal = static_cast<int>(causes[0]),
          .duration_is_over = causes[1] != 0,
          .deadline_is_near = causes[2] != 0};
}

bool ExitConditions::is_urgent() {
  const StopCauses causes = all_reduced_causes();
  return causes.signal != 0 || causes.duration_is_over || causes.deadline_is_near;
}

int ExitConditions::exit_code() {
  const int signal = all_reduced_causes().signal;
  return signal != 0 ? exit_code_after(signal) : 0;
}

bool ExitConditions::duration_is_over() const {
  return training_.exit_duration_in_mins && minutes() > *training_.exit_duration_in_mins;
}

std::optional<std::string> ExitConditions::reason(std::int64_t iteration) {
  const StopCauses causes = all_reduced_causes();
  if (causes.signal != 0) return "after receiving " + signal_name(causes.signal) + ".";
  if (causes.duration_is_over) return "after " + std::to_string(minutes()) + " minutes";
  if (causes.deadline_is_near && deadline_ != nullptr)
    return "before the end of its Slurm job: " + duration_text(deadline_->seconds_left()) +
           " are left, a step and a save may need " + duration_text(deadline_->seconds_needed());
  if (training_.exit_interval && iteration % *training_.exit_interval == 0)
    return "at iteration " + std::to_string(iteration);
  if (is_phase_transition(training_, iteration))
    return "at iteration " + std::to_string(iteration) +
           ", where a phase of the data ends: start again with the flags of the next phase";
  return std::nullopt;
}

}  // namespace megatron
