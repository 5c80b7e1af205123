// The formula of AdamW (kernels/cpu/adamw.cpp) for one element.
#pragma once

#include <cmath>

#include "kernels/cuda/element_update_body.h"

namespace megatron::kernels::cuda {

/// The rule with the scalars of one step precomputed, of the type C of the main weights.
template <class C>
struct Adamw {
  C grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size,
      inv_sqrt_bias_correction2;

  MEGATRON_HOST_DEVICE Adamw(const AdamwRule& rule, const StepScalars& scalars,
                             const UpdateChunk& chunk)
      : grad_scale(static_cast<C>(scalars.grad_scale)),
        decay(static_cast<C>(scalars.lr[chunk.group] * chunk.lr_factor *
                             (chunk.is_decayed ? scalars.weight_decay : 0))),
        beta1(static_cast<C>(rule.beta1)),
        one_minus_beta1(static_cast<C>(1 - rule.beta1)),
        beta2(static_cast<C>(rule.beta2)),
        one_minus_beta2(static_cast<C>(1 - rule.beta2)),
        eps(static_cast<C>(rule.eps)) {
    const double bias_correction1 = 1 - pow(rule.beta1, scalars.num_steps),
                 bias_correction2 = 1 - pow(rule.beta2, scalars.num_steps);
    step_size = static_cast<C>(scalars.lr[chunk.group] * chunk.lr_factor / bias_correction1);
    inv_sqrt_bias_correction2 = static_cast<C>(1 / square_root(bias_correction2));
  }

  MEGATRON_HOST_DEVICE C element(C grad, C weight, C* exp_avg, C* exp_avg_sq) const {
    const C g = grad * grad_scale;
    const C m = beta1 * *exp_avg + one_minus_beta1 * g,
            v = beta2 * *exp_avg_sq + one_minus_beta2 * (g * g);
    *exp_avg = m;
    *exp_avg_sq = v;
    return weight -
           (step_size * (m / (square_root(v) * inv_sqrt_bias_correction2 + eps)) + decay * weight);
  }
};

}  // namespace megatron::kernels::cuda
