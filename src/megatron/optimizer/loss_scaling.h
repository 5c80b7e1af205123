// The loss scale: the factor of a loss before backward, so that small gradients survive in float16
// (Megatron's grad_scaler).
#pragma once

#include <cstdint>

#include "megatron/config/settings.h"

namespace megatron {

struct LossScaling {
  double initial = 1;
  bool is_dynamic = false;
  double min = 1;
  std::int64_t window = 1000;   ///< good steps in a row that double the scale
  std::int64_t hysteresis = 2;  ///< bad steps that halve it; counted again from the next doubling
};

/// What the flags ask for: none in fp32, --loss-scale or none in bf16, --loss-scale or a dynamic
/// scale in fp16. A --loss-scale of 0 is none, as in Megatron.
LossScaling loss_scaling(const TrainingConfig& training);

/// The part of a dynamic scale that belongs to a checkpoint.
struct LossScaleState {
  double scale = 1;
  std::int64_t growth_tracker = 0, hysteresis_tracker = 0;
  bool operator==(const LossScaleState&) const = default;
};

}  // namespace megatron
