// Follows the output of a run with faults: which fault is due, and what came of each. It starts no
// process and reads no clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/cli/chaos_plan.h"

namespace megatron {

/// What the log line of a step says.
struct LoggedStep {
  std::int64_t iteration = 0;
  std::string loss, grad_norm;  ///< as printed; empty for a step that was skipped
  bool may_be_wrong = false;    ///< between a bit flip and the restart after it
};

/// Returns the step of a line of `pretrain`; nullopt for other lines.
std::optional<LoggedStep> logged_step(const std::string& line);

/// What came of a fault.
struct FaultOutcome {
  Fault fault;
  bool has_happened = false;
  std::optional<double> recovery_s = {};  ///< until the next step, or the run, was finished
  std::int64_t repeated_steps = 0;        ///< steps that were computed again
  bool is_unnoticed = false;  ///< the run continued to its end without the restart that must follow
};

struct ChaosOutcome {
  int code = 0;  ///< exit code; 128 + signal
  bool hung = false;
  double seconds = 0;
  std::vector<FaultOutcome> faults;
  /// What each step printed, once for each time that it ran.
  std::map<std::int64_t, std::vector<LoggedStep>> steps;
};

class ChaosWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// The run starts at `begin`.
  ChaosWatch(const std::vector<Fault>& faults, Time begin);

  /// Reads a line of the run. Returns whether it is that of a step.
  bool take(const std::string& line, Time now);
  Time last_step() const { return last_step_; }             ///< the begin, before the first step
  std::int64_t furthest_step() const { return furthest_; }  ///< 0 before the first step

  /// Returns the fault that is due, which must begin() or be postpone()d; null if none is.
  const Fault* due_fault(Time now);
  /// The fault that is due happens. One that `lasts` is active until end_fault().
  void begin_fault(Time now, bool lasts);
  /// The fault that is due finds nothing to break. It is given up after some steps.
  void postpone_fault();

  bool is_active() const { return is_active_; }
  /// The following are about the last fault that began.
  const Fault& last_fault() const { return outcome_.faults[next_ - 1].fault; }
  Time happened() const { return happened_; }
  bool has_restarted() const { return has_restarted_; }
  bool has_failed_to_save() const { return has_failed_to_save_; }
  /// A full disk that no save has met did not happen.
  void end_fault();

  /// Returns what came of the run, which ended with this exit code at `now`.
  ChaosOutcome finish(int code, Time now);

 private:
  bool is_recovering() const;
  bool weights_are_wrong() const;
  void note_step(bool is_repeated);

  ChaosOutcome outcome_;
  Time begin_, last_step_, happened_;
  std::int64_t furthest_ = 0;
  double step_s_ = 0;     ///< time of the last step that no fault made longer
  std::size_t next_ = 0;  ///< fault
  std::optional<Time> due_;
  int steps_since_ = 0;                                      ///< the last fault
  bool is_active_ = false;                                   ///< the last fault lasts
  bool has_restarted_ = false, has_failed_to_save_ = false;  ///< since the last fault
};

}  // namespace megatron
