#include "megatron/training/exit_conditions.h"

#include "megatron/base/progress.h"

namespace megatron {

ExitConditions::ExitConditions(const TrainingConfig& training, const RunClock& clock, double started_s, const JobDeadline* deadline)
    : training_(training), clock_(clock), started_s_(started_s), deadline_(deadline), signals_(training.exit_signal) {}

std::optional<std::string> ExitConditions::reason(std::int64_t iteration) const {
  if (const auto signal = signals_.received()) return "after receiving " + signal_name(*signal) + ".";
  if (duration_is_over()) return "after " + std::to_string(minutes()) + " minutes";
  if (deadline_is_near())
    return "before the end of its Slurm job: " + duration_text(deadline_->seconds_left()) + " are left, a step and a save may need " +
           duration_text(deadline_->seconds_needed());
  if (training_.exit_interval && iteration % *training_.exit_interval == 0) return "at iteration " + std::to_string(iteration);
  return std::nullopt;
}

}  // namespace megatron
