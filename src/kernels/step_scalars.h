// The scalars of one optimizer step. They live in the memory of the device that holds the weights,
// and kernels read and write them there. The host reads them once, after the step. So the device
// decides by itself whether a step is applied, and computes clipping and the next loss scale.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"

namespace megatron::kernels {

/// All members are float64, so that they form one small tensor. Counts and flags are whole numbers.
struct StepScalars {
  // These are carried from step to step.
  double num_steps = 0;  ///< number of applied updates
  double loss_scale = 1;
  double growth_tracker = 0, hysteresis_tracker = 0;
  // These describe the last step.
  double applied = 0;
  double grad_norm = 0;          ///< norm of the unscaled gradients, before clipping
  double first_non_finite = -1;  ///< index of a parameter whose gradient is not finite, or −1
  double num_zeros = 0;          ///< valid when zeros were counted
  double grad_scale = 1;         ///< factor of the gradients: clipping divided by the loss scale
  /// The learning rates of the default and of the decoupled parameter group.
  double lr[2] = {0, 0};
  double weight_decay = 0;
};

/// Settings of every step, whatever the update rules.
struct StepRules {
  double clip_grad = 0;             ///< 0 turns clipping off
  bool dynamic_loss_scale = false;  ///< Megatron's DynamicGradScaler
  double min_loss_scale = 1;
  double loss_scale_window = 1000;
  double hysteresis = 2;
};

/// Inputs of a step that come from the host.
struct StepInputs {
  double lr[2] = {0, 0};
  double weight_decay = 0;
  /// Lies on the device. When it is not 0, a loss is not finite and the step changes nothing. It
  /// may be null.
  const double* found_inf = nullptr;
};

/// Updates the dynamic loss scale as Megatron does: `hysteresis` bad steps halve it, but not below
/// min_loss_scale, and `loss_scale_window` good steps in a row double it.
MEGATRON_HOST_DEVICE inline void update_loss_scale(StepScalars& s, const StepRules& rules,
                                                   bool is_finite) {
  if (!rules.dynamic_loss_scale) return;
  if (!is_finite) {
    s.growth_tracker = 0;
    s.hysteresis_tracker -= 1;
    if (s.hysteresis_tracker <= 0)
      s.loss_scale =
          s.loss_scale * 0.5 > rules.min_loss_scale ? s.loss_scale * 0.5 : rules.min_loss_scale;
    return;
  }
  s.growth_tracker += 1;
  if (s.growth_tracker != rules.loss_scale_window) return;
  s.growth_tracker = 0;
  s.hysteresis_tracker = rules.hysteresis;
  s.loss_scale *= 2;
}

/// Computes everything that update rules need from the sums of squares of the parameters, which are
/// in canonical order.
MEGATRON_HOST_DEVICE inline void finalize_step(StepScalars& s, const StepRules& rules,
                                               const StepInputs& inputs, const double* squares,
                                               std::int64_t num_parameters) {
  double sum = 0;
  s.first_non_finite = -1;
  for (std::int64_t p = 0; p < num_parameters; ++p) {
    sum += squares[p];
    if (s.first_non_finite < 0 && !(squares[p] - squares[p] == 0))
      s.first_non_finite = static_cast<double>(p);
  }
  const double inverse_scale = 1 / s.loss_scale;
  const bool is_finite = s.first_non_finite < 0,
             has_found_inf = inputs.found_inf != nullptr && *inputs.found_inf != 0;
  s.grad_norm = sqrt(sum) * inverse_scale;
  s.applied = is_finite && !has_found_inf;
  if (!has_found_inf) update_loss_scale(s, rules, is_finite);
  if (s.applied == 0) return;
  const double clip = rules.clip_grad > 0 ? rules.clip_grad / (s.grad_norm + 1e-6) : 1;
  s.grad_scale = inverse_scale * (clip < 1 ? clip : 1);
  s.num_steps += 1;
  s.lr[0] = inputs.lr[0];
  s.lr[1] = inputs.lr[1];
  s.weight_decay = inputs.weight_decay;
}

}  // namespace megatron::kernels
