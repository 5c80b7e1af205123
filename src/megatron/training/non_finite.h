// When a loss or gradient is NaN or infinite: which microbatch, which samples, which weight.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/training/train_step.h"

namespace megatron {

/// Training diverged: printed without a stack, exit 1. The weights are those of the last good step.
class NonFiniteError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The error for microbatch `index` of the batch, whose loss came out as `loss`; looks for the first weight that is not finite.
NonFiniteError non_finite_loss(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch, std::size_t index,
                               double loss);

/// The error for a gradient of `parameter` that is not finite although every loss was; runs the microbatches again to find the one at fault.
NonFiniteError non_finite_gradient(const TrainStepParts& parts, const TrainStepOptions& options, const std::vector<Microbatch>& batch,
                                   const std::string& parameter);

}  // namespace megatron
