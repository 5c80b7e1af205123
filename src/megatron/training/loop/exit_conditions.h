// Why a run stops before its last iteration: a signal, --exit-duration-in-mins, --exit-interval, or
// the end of its Slurm job. Ranks agree: what one of them meets stops all, at the same point. Every
// question is collective over the world.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/config/settings.h"
#include "megatron/parallel/rank.h"
#include "megatron/training/loop/job_deadline.h"
#include "megatron/training/loop/run_clock.h"
#include "megatron/training/loop/stop_signals.h"

namespace megatron {

class ExitConditions {
 public:
  /// `started_s` on the monotonic clock; `deadline` is null when nothing ends the job.
  ExitConditions(const TrainingConfig& training, const RunClock& clock, double started_s,
                 const JobDeadline* deadline, const Rank& rank);

  /// The end of Megatron's "exiting program …", after `iteration` was made; nothing when the run
  /// goes on.
  std::optional<std::string> reason(std::int64_t iteration);
  /// Whether the run should stop even within an evaluation.
  bool is_urgent();
  /// 0, or that of the signal that came.
  int exit_code();

 private:
  /// What makes the run stop, on any rank.
  struct StopCauses {
    int signal = 0;  ///< 0: none
    bool duration_is_over = false, deadline_is_near = false;
  };
  StopCauses all_reduced_causes() const;
  double minutes() const { return (clock_.monotonic_s() - started_s_) / 60; }
  bool duration_is_over() const {
    return training_.exit_duration_in_mins && minutes() > *training_.exit_duration_in_mins;
  }
  bool deadline_is_near() const { return deadline_ != nullptr && deadline_->is_near(); }

  const TrainingConfig& training_;
  const RunClock& clock_;
  double started_s_;
  const JobDeadline* deadline_;
  const Rank& rank_;
  StopSignalHandler signals_;
};

}  // namespace megatron
