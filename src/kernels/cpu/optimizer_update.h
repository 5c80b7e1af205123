// What optimizer_kernels.h is made of, for this CPU.
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

struct OptimizerKernels {
  /// The rule on one chunk.
  void (*update)(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                 const StepScalars& scalars);
  /// sums[b] = Σ of squares of block b, for `count` blocks of kStateBlock numbers one behind the
  /// other.
  void (*block_squares)(const float* values, std::int64_t count, double* sums);
};

const OptimizerKernels& optimizer_kernels();

}  // namespace megatron::kernels
