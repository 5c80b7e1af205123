// The words of the rerun state machine: Megatron Core's modes, states, diagnoses and exit codes
// (megatron/core/rerun_state_machine.py).
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Exit code: restart from the checkpoint, so that the step runs once more elsewhere.
inline constexpr int kExitResumeToDisambiguate = 16;
/// Exit code: a result failed validation and the diagnosis is done.
inline constexpr int kExitFailedOnResultValidation = 17;

enum class RerunMode { disabled, validate_results, report_stats };

enum class RerunState {
  not_running_yet,             ///< between steps
  initial_run,                 ///< first run of a step
  rerunning_in_place,          ///< a result was rejected: the same microbatches again
  will_rerun_from_checkpoint,  ///< the same result came back: the step runs again after a restart
  rerunning_from_checkpoint,   ///< that run
  rerunning_again_from_checkpoint  ///< it landed on the same device: restart once more
};

/// What an unexpected result turned out to be; also the kinds of error that can be injected.
enum class RerunDiagnostic { correct_result, transient_error, persistent_error };

/// A line's status in the tracker file.
enum class RerunStatus {
  rerun_disabled,
  initial_run,
  first_rerun_not_reproducible,
  first_rerun_reproducible,
  second_rerun_not_reproducible,
  second_rerun_reproducible
};

RerunMode rerun_mode(std::string_view name);              ///< of --rerun-mode
RerunDiagnostic rerun_diagnostic(std::string_view name);  ///< of --error-injection-type
std::string_view name_of(RerunDiagnostic diagnostic);
std::string_view name_of(RerunStatus status);  ///< "INITIAL_RUN"

/// One check of a result.
struct ResultCheck {
  enum class Rejects { nan, inf, large };
  std::string message = {};
  Rejects rejects = Rejects::nan;
  double threshold =
      10;  ///< large: rejected from this multiple of the largest of the first 100 values on
  std::string_view context = {};  ///< large: name of the value whose maximum is kept
  double tolerance = 0;           ///< relative difference up to which a rerun counts as the same
  bool fatal = true;              ///< stop even when the result turns out to be correct
};

/// Where a result was computed.
struct ComputeLocation {
  std::string node;
  int device = 0;
  bool has_alternative = true;  ///< false on a CPU: the same place after a restart is all there is,
                                ///< and is taken as the second opinion
};

}  // namespace megatron
