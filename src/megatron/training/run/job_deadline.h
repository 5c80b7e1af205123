// Tracks the end time of a Slurm job, so that a run saves a checkpoint before it is killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/training/run/run_clock.h"

namespace megatron {

/// Counts down on the monotonic clock. The wall clock is read once, so later changes of the wall
/// clock have no effect.
class JobDeadline {
 public:
  /// Safety margin in seconds, in addition to the time of a save and of an iteration. It covers the
  /// cluster's own signals and clean-up.
  static constexpr double kMarginS = 30;

  JobDeadline(const RunClock& clock, std::int64_t end_epoch_s);

  double seconds_left() const { return end_s_ - clock_.monotonic_s(); }
  /// Returns 1.5 × the longest save time, plus the longest iteration (step and evaluation), plus
  /// the margin.
  double seconds_needed() const { return 1.5 * longest_save_s_ + longest_iteration_s_ + kMarginS; }
  /// Returns whether the remaining time may be too short for another iteration and a save.
  bool is_near() const { return seconds_left() < seconds_needed(); }

  void record_iteration_time(double seconds);
  /// Records the time of a finished save, or the expected time before the first save.
  void record_save_time(double seconds);

 private:
  RunClock clock_;
  double end_s_, longest_iteration_s_ = 0, longest_save_s_ = 0;
};

/// The deadline from SLURM_JOB_END_TIME and a log line that reports it ("" when the variable is
/// unset).
struct SlurmDeadline {
  std::optional<JobDeadline> deadline;
  std::string line;
};
/// Parses `end_time`, the value of SLURM_JOB_END_TIME in seconds since 1970 (null when unset).
/// There is no deadline when the value is not a number or lies in the past, or when the run does
/// not save (`saves` is false), because it would gain nothing by stopping early.
SlurmDeadline slurm_deadline(const char* end_time, const RunClock& clock, bool saves);

}  // namespace megatron
