// Runs a command of the launcher as a child, reads the steps from its log lines, and breaks its
// ranks as planned.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "megatron/cli/chaos_plan.h"
#include "megatron/cli/chaos_watch.h"

namespace megatron {

struct ChaosRunOptions {
  std::vector<std::string> command;  ///< of this program: "launch", …
  std::filesystem::path log;         ///< receives the output of the run
  std::int64_t num_ranks = 1;
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
