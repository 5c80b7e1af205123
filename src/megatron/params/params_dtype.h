// The dtype of a run's weights.
#pragma once

#include <c10/core/ScalarType.h>

namespace megatron {

struct TrainingConfig;

/// Returns the dtype of the weights that layers compute with.
inline c10::ScalarType params_dtype(const TrainingConfig& training) {
  if (training.bf16) return c10::kBFloat16;
  return training.fp16 ? c10::kHalf : c10::kFloat;
}

}  // namespace megatron
