// Modes, states and diagnoses of the rerun state machine, named as in Megatron Core
// (megatron/core/rerun_state_machine.py).
#pragma once

#include <string>
#include <string_view>

namespace megatron {

enum class RerunMode { disabled, validate_results, report_stats };

enum class RerunState {
  not_running_yet,             ///< between steps
  initial_run,                 ///< first run of the step
  rerunning_in_place,          ///< a result was rejected; the same microbatches run again
  will_rerun_from_checkpoint,  ///< the result was reproduced; the step runs again after a restart
  rerunning_from_checkpoint,   ///< the run after that restart
  rerunning_again_from_checkpoint  ///< the restarted run is on the same device; restart once more
};

/// Diagnosis of an unexpected result; also the kinds of error that can be injected.
enum class RerunDiagnostic { correct_result, transient_error, persistent_error };

/// Status of a line in the tracker file.
enum class RerunStatus {
  rerun_disabled,
  initial_run,
  first_rerun_not_reproducible,
  first_rerun_reproducible,
  second_rerun_not_reproducible,
  second_rerun_reproducible
};

RerunMode rerun_mode(std::string_view name);  ///< parses a value of --rerun-mode
/// Parses a value of --error-injection-type.
RerunDiagnostic rerun_diagnostic(std::string_view name);
std::string_view name_of(RerunDiagnostic diagnostic);
std::string_view name_of(RerunStatus status);  ///< Megatron's spelling, such as "INITIAL_RUN"

/// One validation check of a result.
struct ResultCheck {
  enum class Rejects { nan, inf, large };
  std::string message = {};
  Rejects rejects = Rejects::nan;
  /// large: reject values above this multiple of the maximum of the first 100 values
  double threshold = 10;
  std::string_view context = {};  ///< large: name of the value whose maximum is tracked
  double tolerance = 0;  ///< maximum relative difference at which a rerun counts as identical
  bool fatal = true;     ///< stop even if the result turns out to be correct
};

/// The node and device on which a result was computed.
struct ComputeLocation {
  std::string node;
  int device = 0;
  /// Identity of the GPUs of all ranks, for results to which all of them contribute. It replaces
  /// node and device in comparisons, so that all ranks come to the same verdict.
  std::string gpus = {};
  /// False on a CPU: no other device exists, so a restart on the same one counts as the second
  /// opinion.
  bool has_alternative = true;

  bool is_same_as(const ComputeLocation& other) const {
    if (gpus != other.gpus) return false;
    return !gpus.empty() || (node == other.node && device == other.device);
  }
};

}  // namespace megatron
