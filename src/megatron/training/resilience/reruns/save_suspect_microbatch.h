// Saves a microbatch with a rejected result to a file and prints how to replay it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/checkpoint/training_progress.h"
#include "megatron/training/resilience/non_finite.h"

namespace megatron {

struct TrainingPlan;

/// The weights that the run had at the failed step.
struct StepWeights {
  std::string checkpoint_root = {};  ///< empty: initial weights, drawn from the seed
  std::int64_t iteration = 0;
};

/// Returns the weights before the failed step. If no step was done since `first_iteration`, they
/// come from --load or the seed; otherwise from the checkpoint that the run saves to --save on
/// exit. Returns nullopt without --save.
std::optional<StepWeights> step_weights(const TrainingPlan& plan, const TrainingProgress& progress,
                                        std::int64_t first_iteration);

/// Writes the microbatch to --save, else --tensorboard-dir, else the current folder. Returns lines
/// for the error message. It does not throw when the file cannot be written, so that the original
/// error is still reported.
std::string save_suspect_microbatch(const TrainingPlan& plan, const TrainingProgress& progress,
                                    const SuspectMicrobatch& suspect, std::int64_t first_iteration,
                                    const std::string& cause);

}  // namespace megatron
