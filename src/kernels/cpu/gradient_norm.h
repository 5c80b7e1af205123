// Sums of squares and counts of zeros of gradients, in one pass each. Squares of f32 are exact in
// double and are added in one order, so every instruction set gives the same bits.
#pragma once

#include <cstdint>

#include "kernels/optimizer_operations.h"

namespace megatron::kernels {

/// The kernels of one instruction set.
struct GradientNormKernels {
  /// Stores Σ gradient² of each block of a chunk in `blocks` and returns the number of blocks. The
  /// elements of a block are added in one fixed order. 16-bit gradients are converted to f32.
  std::int64_t (*block_squares)(const GradientChunk& chunk, Type type, double* blocks);
  /// Returns the number of zeros of a chunk.
  std::int64_t (*count_zeros)(const GradientChunk& chunk, Type type);
};

const GradientNormKernels& gradient_norm_kernels();

/// Returns Σ gradient² of a chunk in double. Blocks are added pairwise.
inline double sum_of_squares(const GradientChunk& chunk, Type type) {
  double blocks[kChunkElements / kStateBlock];
  return pairwise_sum(blocks, gradient_norm_kernels().block_squares(chunk, type, blocks));
}

}  // namespace megatron::kernels
