// Puts a microbatch that went wrong into a file beside the checkpoints and says how to look at it
// again.
#pragma once

#include <string>

#include "megatron/training/loop/trainer.h"
#include "megatron/training/resilience/non_finite.h"

namespace megatron {

/// Which weights the run had when the step went wrong.
struct StepWeights {
  std::string checkpoint_root = {};  ///< empty: drawn from the seed
  std::int64_t iteration = 0;
};

/// The weights before the step: of --load or the seed when no step has been done since
/// `first_iteration`, else of the checkpoint in --save that is saved on the way out; nothing
/// without --save.
std::optional<StepWeights> step_weights(const Trainer& trainer, std::int64_t first_iteration);

/// Writes the microbatch into --save, else --tensorboard-dir, else the current folder. Returns
/// lines for the message, also when it cannot be written: a diagnosis must not end in another
/// error.
std::string save_suspect_microbatch(const Trainer& trainer, const SuspectMicrobatch& suspect,
                                    std::int64_t first_iteration, const std::string& cause);

}  // namespace megatron
