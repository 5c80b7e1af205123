// What one pass over the gradients tells: their norm, whether they are finite, how many are zero.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/optimizer/chunks.h"

namespace megatron {

struct GradientSummary {
  double norm = 0;                   ///< √ of the per-tensor float64 sums of squares, added in the order of the parameters
  std::int64_t num_zeros = 0;        ///< of true elements; padding rows are not counted
  std::string non_finite_parameter;  ///< first parameter with a NaN or infinite gradient, or ""
};

/// `chunks` are those of `parameters`; gradients must be finished. Zeros are counted only when asked for (a second pass).
GradientSummary summarize_gradients(const std::vector<Parameter*>& parameters, const std::vector<Chunk>& chunks, bool count_zeros);

/// The factor that brings gradients of this norm to at most `clip_grad`: clip_grad / (norm + 1e-6) where below 1; 1 when clip_grad is 0.
double clip_factor(double norm, double clip_grad);

}  // namespace megatron
