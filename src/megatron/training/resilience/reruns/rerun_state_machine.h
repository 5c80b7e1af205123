// Megatron Core's rerun state machine (megatron/core/rerun_state_machine.py). When a result is
// suspicious, the step runs again, first in place and then after a restart, to distinguish a
// hardware fault from a correct result. It only keeps state; the caller computes.
//
//   machine.begin(iteration);
//   while (machine.should_run()) {
//     compute; for (each check, in a fixed order) machine.validate(result, check);
//   }
//   const auto verdict = machine.verdict();
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "megatron/base/json_value.h"
#include "megatron/training/resilience/reruns/rerun_state.h"
#include "megatron/training/resilience/reruns/tracker_file.h"

namespace megatron {

/// Collects how much a step's results differ when it runs twice (--rerun-mode report_stats) and
/// formats them as Megatron does.
class DeterminismStatistics {
 public:
  /// Keeps the last `capacity` nonzero differences.
  explicit DeterminismStatistics(std::size_t capacity = 100000) : capacity_(capacity) {}
  void record(double difference);
  /// Returns "2,000/1,998 total/identical samples, rel. variability: avg= …, p50= …, …, max: …" or
  /// "2,000 samples, all identical".
  std::string text() const;

 private:
  std::size_t capacity_, next_ = 0;
  std::size_t num_zeros_ = 0;
  double max_ = 0;
  std::vector<double> differences_;
};

class RerunStateMachine {
 public:
  struct Options {
    RerunMode mode = RerunMode::validate_results;
    std::int64_t error_injection_rate = 0;
    RerunDiagnostic error_injection_type = RerunDiagnostic::transient_error;
    std::uint64_t seed = 1234;  ///< seed of the injected errors
    std::string tracker_filename = {};
    ComputeLocation place = {};
    std::function<void(const std::string&)> log = {};  ///< prints one message
    /// Returns whether the flag is set on any rank: a defective rank may compute another result
    /// than the others. Collective over all ranks. Null: there is one rank.
    std::function<bool(bool)> any_rank = {};
  };
  struct Verdict {
    bool save = false;  ///< save the state before the step, with this machine's state
    bool exit = false;
    int exit_code = 0;
  };

  explicit RerunStateMachine(Options options);

  /// Call it before the runs of step `iteration` (one-based). Drops a pending rerun of another
  /// iteration.
  void begin(std::int64_t iteration);
  /// Returns whether to run forward and backward (again). Call it until it returns false.
  /// Collective over all ranks.
  bool should_run();
  /// Validates one result of the current run. Every run of a step must make the same calls in the
  /// same order.
  void validate(double result, const ResultCheck& check);
  /// Returns what to do next. Call it when should_run() returned false, before the weight update.
  Verdict verdict();

  RerunMode mode() const { return options_.mode; }
  RerunState state() const { return state_; }
  /// Returns whether a result of this step was rejected and then reproduced.
  bool is_reproducible() const { return checkpoint_requested_; }
  /// Writes the rejected result that stops the run to the tracker file. Used with reruns disabled
  /// and in the first step.
  void track_without_rerun(double result, const ResultCheck& check) {
    track(RerunStatus::rerun_disabled, result, check.message);
  }
  /// Returns whether this rank has rejected a result of the step that runs again.
  bool has_rejected() const { return has_rejected_; }
  /// Returns the message of the step's first rejected check, and the one-based index among the
  /// calls with that message.
  const std::string& rejected_message() const { return failed_.message; }
  std::int64_t rejected_sequence() const { return failed_.sequence; }
  bool injects_errors() const { return injector_.is_on(); }

  /// Returns the state to checkpoint; null when no step must run again.
  JsonValue to_json() const;
  /// Restores the state from a checkpoint; null means none. UserError naming `source` when it is
  /// damaged.
  void restore(const Json& json, const std::string& source);

 private:
  struct Call {
    std::string message;
    std::int64_t sequence = 0;  ///< one-based index among the calls with this message in the step
    auto operator<=>(const Call&) const = default;
  };
  struct RunningMax {
    std::int64_t count = 0;
    double value = 0;
  };

  void validate_first_run(double result, const ResultCheck& check, const Call& call);
  void judge_first_rerun(double result, const ResultCheck& check);
  void judge_second_rerun(double result, const ResultCheck& check);
  void record_statistics(double result, const Call& call);
  bool is_rejected(double result, const ResultCheck& check);
  bool is_unexpectedly_large(double result, const ResultCheck& check);
  double difference(double result);
  /// Returns a result and the rejected one for a message which says that they differ.
  std::string differing(double result) const;
  void report_statistics();
  void log_failure(const std::string& message);
  void track(RerunStatus status, double result, const std::string& message);
  void clear_requests();
  void agree(bool& request) const {
    if (options_.any_rank) request = options_.any_rank(request);
  }

  Options options_;
  TrackerFile tracker_;
  ErrorInjector injector_;
  RerunState state_ = RerunState::not_running_yet;
  std::int64_t iteration_ = 0;
  bool first_iteration_complete_ = false, has_rejected_ = false;
  bool rerun_requested_ = false, checkpoint_requested_ = false, restart_again_requested_ = false,
       continue_requested_ = false;
  std::map<std::string, std::int64_t> calls_;  ///< number of calls in this run, by message
  std::int64_t num_calls_ = 0;
  Call failed_;
  double initial_result_ = 0;
  ComputeLocation suspicious_;
  std::map<std::string, RunningMax> largest_;
  std::map<Call, double> first_results_;  ///< used by report_stats
  std::vector<std::pair<std::string, DeterminismStatistics>> statistics_;
};

}  // namespace megatron
