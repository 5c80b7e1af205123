// Decides whether a run stops before its last iteration: because of a signal,
// --exit-duration-in-mins, --exit-interval, --phase-transition-iterations, or the end of its Slurm
// job. A condition that holds on one rank stops all ranks at the same iteration. Every public
// method is collective over the world.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/training/run/job_deadline.h"
#include "megatron/training/run/run_clock.h"
#include "megatron/training/run/stop_signals.h"

namespace megatron {

struct Rank;
struct TrainingConfig;

class ExitConditions {
 public:
  /// `deadline` is null when the job has no known end.
  ExitConditions(const TrainingConfig& training, const RunClock& clock, const JobDeadline* deadline,
                 const Rank& rank);

  /// Returns the text that follows "exiting program" in Megatron's log line, to be called after
  /// `iteration` is done. Returns nullopt when the run continues.
  std::optional<std::string> reason(std::int64_t iteration);
  /// Returns whether the run must stop even in the middle of an evaluation.
  bool is_urgent();
  /// Returns the process exit code: 0, or exit_code_after() the received signal.
  int exit_code();

 private:
  /// Stop causes that hold on any rank.
  struct StopCauses {
    int signal = 0;  ///< 0: none
    bool duration_is_over = false, deadline_is_near = false;
  };
  StopCauses all_reduced_causes() const;
  double minutes() const { return clock_.elapsed_s() / 60; }
  bool duration_is_over() const;
  bool deadline_is_near() const { return deadline_ != nullptr && deadline_->is_near(); }

  const TrainingConfig& training_;
  const RunClock& clock_;
  const JobDeadline* deadline_;
  const Rank& rank_;
  StopSignalHandler signals_;
};

}  // namespace megatron
