// Why a run stops before its last iteration: a signal, --exit-duration-in-mins, --exit-interval, or the end of its Slurm job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/config/settings.h"
#include "megatron/training/job_deadline.h"
#include "megatron/training/run_clock.h"
#include "megatron/training/stop_request.h"

namespace megatron {

class ExitConditions {
 public:
  /// `started_s` on the monotonic clock; `deadline` is null when nothing ends the job.
  ExitConditions(const TrainingConfig& training, const RunClock& clock, double started_s, const JobDeadline* deadline);

  /// The end of Megatron's "exiting program …", after `iteration` was made; nothing when the run goes on.
  std::optional<std::string> reason(std::int64_t iteration) const;
  /// Whether the run should stop even within an evaluation.
  bool is_urgent() const { return signals_.received() || duration_is_over() || deadline_is_near(); }
  /// 0, or that of the signal that came.
  int exit_code() const { return signals_.received() ? exit_code_after(*signals_.received()) : 0; }

 private:
  double minutes() const { return (clock_.monotonic_s() - started_s_) / 60; }
  bool duration_is_over() const { return training_.exit_duration_in_mins && minutes() > *training_.exit_duration_in_mins; }
  bool deadline_is_near() const { return deadline_ != nullptr && deadline_->is_near(); }

  const TrainingConfig& training_;
  const RunClock& clock_;
  double started_s_;
  const JobDeadline* deadline_;
  StopSignals signals_;
};

}  // namespace megatron
