// Builds the error for a NaN or infinite loss or gradient: names the microbatch, samples, op and
// parameter at fault.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/training/step/train_step.h"

namespace megatron {

/// The microbatch at fault, with what a rerun needs.
struct SuspectMicrobatch {
  Microbatch microbatch = {};
  std::size_t index = 0;  ///< zero-based index in its step
  std::int64_t num_microbatches = 1;
  double gradient_scale = 0;  ///< factor on its loss before backward
  bool is_here = true;  ///< false: another rank holds it, and this rank's message has fewer details
};

/// Thrown when training diverges: printed without a stack trace, exit code 1. The weights are those
/// of the last good step.
class NonFiniteError : public std::runtime_error {
 public:
  NonFiniteError(const std::string& text, SuspectMicrobatch suspect)
      : std::runtime_error(text), suspect_(std::move(suspect)) {}
  const SuspectMicrobatch& suspect() const { return suspect_; }

 private:
  SuspectMicrobatch suspect_;
};

/// Returns the error for a step whose update was skipped, for its first non-finite loss or, if all
/// are finite, for its gradients. Runs microbatches again with every op recorded, which overwrites
/// the gradients. Collective over the world.
NonFiniteError non_finite_step(const TrainStepContext& context, const TrainStepOptions& options,
                               const std::vector<Microbatch>& batch, const TrainStepResult& result);

}  // namespace megatron
