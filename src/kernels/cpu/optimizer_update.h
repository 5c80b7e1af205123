// The kernels behind optimizer_kernels.h.
#pragma once

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// The optimizer kernels of one instruction set.
struct OptimizerKernels {
  /// Applies the rule to one chunk.
  void (*update)(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                 const StepScalars& scalars);
  /// Computes sums[b] = Σ of squares of block b, for `count` contiguous blocks of kStateBlock
  /// numbers.
  void (*block_squares)(const float* values, std::int64_t count, double* sums);
};

const OptimizerKernels& optimizer_kernels();

}  // namespace megatron::kernels
