#include "megatron/optimizer/loss_scaling.h"

#include "megatron/config/loss_scale_config.h"
#include "megatron/config/training_config.h"

namespace megatron {

LossScaling loss_scaling(const TrainingConfig& training) {
  const LossScaleConfig& config = training.loss_scale;
  const double constant = config.loss_scale.value_or(0);
  if (constant > 0) return {.initial = constant};
  if (!training.fp16) return {};
  return {.initial = config.initial_loss_scale,
          .is_dynamic = true,
          .min = config.min_loss_scale,
          .window = config.loss_scale_window,
          .hysteresis = config.hysteresis};
}

}  // namespace megatron
