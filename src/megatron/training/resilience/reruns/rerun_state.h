// Modes, states and diagnoses of the rerun state machine, named as in Megatron Core
// (megatron/core/rerun_state_machine.py), and the errors that it injects.
#pragma once

#include <cstdint>
#include <optional>
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

/// Injects errors into result validation at random, to test how reruns handle them
/// (--error-injection-rate, --error-injection-type).
class ErrorInjector {
 public:
  /// On average one in `rate` validations fails; 0: none.
  ErrorInjector(std::int64_t rate, RerunDiagnostic type, std::uint64_t seed)
      : rate_(rate), type_(type), seed_(seed) {}

  bool is_on() const { return rate_ > 0; }
  /// Returns whether to reject validation `number` of `iteration` although the result is correct.
  /// At most one injected error is active at a time.
  bool inject(std::int64_t iteration, std::int64_t number);
  /// Returns the relative difference (0 or infinity) that a rerun must report, or nullopt when no
  /// injected error is active.
  std::optional<double> simulated_difference(RerunState state);

  std::optional<RerunDiagnostic> injected() const { return injected_; }
  void set_injected(std::optional<RerunDiagnostic> injected) { injected_ = injected; }
  /// Returns "Injecting error type Transient error".
  std::string announcement() const;

 private:
  std::int64_t rate_;
  RerunDiagnostic type_;
  std::uint64_t seed_;
  std::optional<RerunDiagnostic> injected_;
};

}  // namespace megatron
