// Update rules and gradient statistics over raw memory, in one pass each. Arithmetic is in f32 (f64
// where the storage is f64) without contraction, so the result does not depend on the instruction
// set, the chunks or the threads.
#pragma once

#include <cstdint>

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// Applies the rule to one chunk in any storage. 16-bit gradients and states are converted to f32,
/// and the weight is rounded from `main`.
void update_chunk(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                  const StepScalars& scalars);

/// Returns Σ gradient² of a chunk in double. Blocks are added pairwise, and the elements of a block
/// in one fixed order.
double sum_of_squares(const UpdateChunk& chunk, Type type);

std::int64_t count_zeros(const UpdateChunk& chunk, Type type);

}  // namespace megatron::kernels
