// One whole training step without a trainer.
#pragma once

#include <vector>

#include "megatron/training/resilience/non_finite.h"
#include "megatron/training/step/train_step.h"

namespace megatron {

/// Runs one step in the order of GuardedStep::run(). When a loss or gradient is not finite, weights
/// and optimizer state stay unchanged; with `check_for_nan` it throws NonFiniteError. Collective
/// over the world.
inline TrainStepResult train_step(const TrainStepContext& context,
                                  const TrainStepOptions& options) {
  const std::vector<Microbatch> batch = fetch_microbatches(context, options);
  const StepLosses losses = forward_backward(context, options, batch);
  update_weights(context, options, losses);
  TrainStepResult result = read_step(context, options, losses);
  result.hybrid_context = hybrid_context_of(batch);
  if (options.check_for_nan && !result.update.applied)
    throw non_finite_step(context, options, batch, result);
  return result;
}

}  // namespace megatron
