// Runs a command of the launcher as a child, reads the steps from its log lines, and breaks its
// ranks as planned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
};

struct ChaosOutcome {
  int code = 0;  ///< exit code; 128 + signal
  bool hung = false;
  double seconds = 0;
  std::vector<FaultOutcome> faults;
  /// What each step printed, once for each time that it ran.
  std::map<std::int64_t, std::vector<LoggedStep>> steps;
};

struct ChaosRunOptions {
  std::vector<std::string> command;  ///< of this program: "launch", …
  std::filesystem::path log;         ///< receives the output of the run
  std::vector<Fault> faults;
  double timeout_s = 120;                        ///< without a finished step
  std::filesystem::path published_weights = {};  ///< folder of FaultKind::bit_flip; "": none
  std::function<void(std::int64_t iteration)> progress = {};
};

/// Thrown when a signal ends the run with faults. All its processes have been killed.
struct ChaosInterrupted {
  int signal = 0;
  std::filesystem::path log;
};

/// Returns when the run has ended or hangs, in which case it is killed.
ChaosOutcome run_with_faults(const ChaosRunOptions& options);

struct ProgramOutput {
  int code = 0;
  std::string text;  ///< stdout and stderr
};

/// Runs this program with the words and returns what it prints.
ProgramOutput output_of_program(const std::vector<std::string>& words);

}  // namespace megatron
