// When a loss or gradient is NaN or infinite: which microbatch, which samples, which op, which
// weight.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/training/loop/train_step.h"

namespace megatron {

/// The microbatch at fault, as it can be run again.
struct SuspectMicrobatch {
  Microbatch microbatch = {};
  std::size_t index = 0;  ///< in its step
  std::int64_t num_microbatches = 1;
  double gradient_scale = 0;  ///< of its loss before backward
  bool is_here = true;        ///< this rank's; on the others the error says less
};

/// Training diverged: printed without a stack, exit 1. The weights are those of the last good step.
class NonFiniteError : public std::runtime_error {
 public:
  NonFiniteError(const std::string& text, SuspectMicrobatch suspect)
      : std::runtime_error(text), suspect_(std::move(suspect)) {}
  const SuspectMicrobatch& suspect() const { return suspect_; }

 private:
  SuspectMicrobatch suspect_;
};

/// The error for a step whose update was not applied: of its first loss that is not finite, or of
/// its gradients. Collective over the world.
NonFiniteError non_finite_step(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch, const TrainStepResult& result);

/// The error for microbatch `index` of the batch, whose loss came out as `loss`; runs it again,
/// every op watched. Overwrites the gradients.
NonFiniteError non_finite_loss(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch, std::size_t index,
                               double loss);

/// The error for a gradient of `parameter` that is not finite although every loss was; runs the
/// microbatches again until one is at fault. Overwrites the gradients.
NonFiniteError non_finite_gradient(const TrainStepContext& context, const TrainStepOptions& options,
                                   const std::vector<Microbatch>& batch,
                                   const std::string& parameter);

}  // namespace megatron
