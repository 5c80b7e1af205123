// The end of a Slurm job: announced at the start, and heeded, so that a run saves before it is
// killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/training/loop/run_clock.h"

namespace megatron {

/// Counts down on the monotonic clock: the wall clock is read once, so a later jump of it changes
/// nothing.
class JobDeadline {
 public:
  /// Kept free besides the time of a save and of a round, in seconds: the cluster's own signals and
  /// clean-up.
  static constexpr double kMarginS = 30;

  JobDeadline(const RunClock& clock, std::int64_t end_epoch_s);

  double seconds_left() const { return end_s_ - clock_.monotonic_s(); }
  /// One and a half times the longest save, the longest round of step and evaluation, and the
  /// margin.
  double seconds_needed() const { return 1.5 * longest_save_s_ + longest_iteration_s_ + kMarginS; }
  /// Whether another round and a save might not fit any more.
  bool is_near() const { return seconds_left() < seconds_needed(); }

  void record_iteration_time(double seconds);
  /// `seconds` of a save that was made, or, before the first, what one is expected to take.
  void record_save_time(double seconds);

 private:
  RunClock clock_;
  double end_s_, longest_iteration_s_ = 0, longest_save_s_ = 0;
};

/// What SLURM_JOB_END_TIME (seconds since 1970, as text; null when unset) says: the deadline, and a
/// line for the log ("" without the variable). A value that is no number or lies in the past gives
/// no deadline; neither does a run that does not save, which would gain nothing by stopping.
struct SlurmDeadline {
  std::optional<JobDeadline> deadline;
  std::string line;
};
SlurmDeadline slurm_deadline(const char* end_time, const RunClock& clock, bool saves);

}  // namespace megatron
