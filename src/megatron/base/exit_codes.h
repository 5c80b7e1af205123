// Exit codes of a run that say whether it is to be started again, with Megatron Core's numbers
// (megatron/core/rerun_state_machine.py).
#pragma once

namespace megatron {

/// Restart from the checkpoint, so that the step runs again, possibly on another device.
inline constexpr int kExitResumeToDisambiguate = 16;
/// A result failed validation and the diagnosis is complete: a restart would fail again.
inline constexpr int kExitFailedOnResultValidation = 17;

}  // namespace megatron
