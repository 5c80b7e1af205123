// Update rules and gradient statistics over raw memory, one pass each. Element-wise arithmetic in T without contraction: the result does not
// depend on instruction set, chunking or threads.
#pragma once

#include <cstdint>

namespace megatron::kernels {

/// AdamW (Loshchilov and Hutter 2019) with the scalars of one step worked out.
struct AdamwCoefficients {
  double grad_scale = 1;  ///< gradients are multiplied by it first (clipping)
  double decay = 0;       ///< lr·weight_decay
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double step_size = 0;     ///< lr / (1 − beta1^t)
  double inverse_root = 1;  ///< 1 / √(1 − beta2^t)
};

/// w ← w − (step_size·m / (√v·inverse_root + eps) + decay·w) after m and v took in the gradient.
template <class T>
void adamw(T* weight, const T* grad, T* exp_avg, T* exp_avg_sq, std::int64_t count, const AdamwCoefficients& coefficients);

struct SgdCoefficients {
  double grad_scale = 1;
  double weight_decay = 0;  ///< added to the gradient as weight_decay·w (L2)
  double momentum = 0;
  double lr = 0;
};

/// w ← w − lr·b with b = momentum·b + g + weight_decay·w; `momentum_buffer` is null when momentum is 0 (b = g + weight_decay·w).
template <class T>
void sgd(T* weight, const T* grad, T* momentum_buffer, std::int64_t count, const SgdCoefficients& coefficients);

/// Σ x² in double, in one fixed order.
template <class T>
double sum_of_squares(const T* values, std::int64_t count);

template <class T>
std::int64_t count_zeros(const T* values, std::int64_t count);

}  // namespace megatron::kernels
