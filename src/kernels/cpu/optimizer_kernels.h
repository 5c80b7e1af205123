// Update rules and gradient statistics over raw memory, one pass each. Arithmetic is in f32 (f64
// where storage is f64) without contraction: the result does not depend on instruction set,
// chunking or threads.
#pragma once

#include <cstdint>

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// The rule on one chunk in any storage: 16-bit gradients and states pass through f32, the weight
/// is rounded from `main`.
void update_chunk(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                  const StepScalars& scalars);

/// Σ gradient² of a chunk in double: pairwise over blocks, whose elements are added in one fixed
/// order.
double sum_of_squares(const UpdateChunk& chunk, Type type);

std::int64_t count_zeros(const UpdateChunk& chunk, Type type);

}  // namespace megatron::kernels
