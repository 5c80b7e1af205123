// Loss scaling (Megatron's grad_scaler): the loss is multiplied by a scale before backward, so that
// small gradients do not underflow in float16.
#pragma once

#include <cstdint>

namespace megatron {

struct TrainingConfig;

struct LossScaling {
  double initial = 1;
  bool is_dynamic = false;
  double min = 1;
  std::int64_t window = 1000;   ///< number of good steps in a row after which the scale doubles
  std::int64_t hysteresis = 2;  ///< number of bad steps after which the scale halves; the count
                                ///< restarts when the scale doubles
};

/// Returns the loss scaling that the flags select. fp32 uses none; bf16 uses --loss-scale or none;
/// fp16 uses --loss-scale or a dynamic scale. As in Megatron, --loss-scale 0 means none.
LossScaling loss_scaling(const TrainingConfig& training);

/// The state of a dynamic loss scale that a checkpoint stores.
struct LossScaleState {
  double scale = 1;
  std::int64_t growth_tracker = 0, hysteresis_tracker = 0;
  bool operator==(const LossScaleState&) const = default;
};

}  // namespace megatron
