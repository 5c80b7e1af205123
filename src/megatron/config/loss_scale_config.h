// The settings of loss scaling.
#pragma once

#include <cstdint>
#include <optional>

namespace megatron {

/// Loss scaling for fp16, which keeps small gradients from underflowing: static, or dynamic with
/// Megatron's rule.
struct LossScaleConfig {
  std::optional<double> loss_scale;  ///< static; none: dynamic
  double initial_loss_scale = 4294967296.0;
  double min_loss_scale = 1;
  std::int64_t loss_scale_window = 1000;  ///< finite steps before the scale doubles
  std::int64_t hysteresis = 2;            ///< non-finite steps before the scale halves
};

}  // namespace megatron
