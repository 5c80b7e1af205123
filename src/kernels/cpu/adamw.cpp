// Compiled once for each instruction set.
#include "kernels/cpu/adamw.h"

#include <cmath>

#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/element_update.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// The rule with the scalars of one step precomputed: w ← w − (step_size·m /
/// (√v·inv_sqrt_bias_correction2 + eps) + decay·w).
template <class T>
struct Adamw {
  T grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size,
      inv_sqrt_bias_correction2;

  Adamw(const AdamwRule& rule, const StepScalars& scalars, const UpdateChunk& chunk)
      : grad_scale(static_cast<T>(scalars.grad_scale)),
        decay(static_cast<T>(chunk.is_decayed
                                 ? scalars.lr[chunk.group] * chunk.lr_factor * scalars.weight_decay
                                 : 0)),
        beta1(static_cast<T>(rule.beta1)),
        one_minus_beta1(static_cast<T>(1 - rule.beta1)),
        beta2(static_cast<T>(rule.beta2)),
        one_minus_beta2(static_cast<T>(1 - rule.beta2)),
        eps(static_cast<T>(rule.eps)) {
    const double bias_correction1 = 1 - std::pow(rule.beta1, scalars.num_steps),
                 bias_correction2 = 1 - std::pow(rule.beta2, scalars.num_steps);
    step_size = static_cast<T>(scalars.lr[chunk.group] * chunk.lr_factor / bias_correction1);
    inv_sqrt_bias_correction2 = static_cast<T>(1 / std::sqrt(bias_correction2));
  }

  Vec16f lanes(const UpdateChunk& chunk, const UpdateTypes& types, std::int64_t i,
               std::int64_t count, Vec16f grad, Vec16f w) const {
    const Vec16f g = grad * broadcast(grad_scale);
    const Vec16f m = broadcast(beta1) * load_at(chunk.state[0], types.state[0], i, count) +
                     broadcast(one_minus_beta1) * g;
    const Vec16f v = broadcast(beta2) * load_at(chunk.state[1], types.state[1], i, count) +
                     broadcast(one_minus_beta2) * (g * g);
    store_at(chunk.state[0], types.state[0], i, count, m);
    store_at(chunk.state[1], types.state[1], i, count, v);
    return w - (broadcast(step_size) *
                    (m / (square_root(v) * broadcast(inv_sqrt_bias_correction2) + broadcast(eps))) +
                broadcast(decay) * w);
  }

  T element(T grad, T w, T* exp_avg, T* exp_avg_sq) const {
    const T g = grad * grad_scale;
    const T m = beta1 * *exp_avg + one_minus_beta1 * g,
            v = beta2 * *exp_avg_sq + one_minus_beta2 * (g * g);
    *exp_avg = m;
    *exp_avg_sq = v;
    return w - (step_size * (m / (std::sqrt(v) * inv_sqrt_bias_correction2 + eps)) + decay * w);
  }
};

inline void adamw(const UpdateChunk& chunk, const UpdateTypes& types, const AdamwRule& rule,
                  const StepScalars& scalars) {
  update_elements<Adamw>(chunk, types, rule, scalars);
}

AdamwKernels adamw_kernels() { return {adamw}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(AdamwKernels, adamw_kernels)
