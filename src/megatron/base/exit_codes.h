// Exit codes of a run that say whether it is to be started again; 16 and 17 are Megatron Core's
// (megatron/core/rerun_state_machine.py).
#pragma once

#include <csignal>

namespace megatron {

/// Restart from the checkpoint, so that the step runs again, possibly on another device.
inline constexpr int kExitResumeToDisambiguate = 16;
/// A result failed validation and the diagnosis is complete: a restart would fail again.
inline constexpr int kExitFailedOnResultValidation = 17;

/// Returns 143 for SIGTERM and SIGUSR1, which schedulers send before the end of a job, so that one
/// code means "saved, can be resumed". Returns 128 + signal for others.
constexpr int exit_code_after(int signal) { return 128 + (signal == SIGUSR1 ? SIGTERM : signal); }

}  // namespace megatron
