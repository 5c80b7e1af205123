#include "kernels/cpu/optimizer_kernels.h"

#include <cmath>

namespace megatron::kernels {

template <class T>
void adamw(T* __restrict weight, const T* __restrict grad, T* __restrict exp_avg, T* __restrict exp_avg_sq, std::int64_t count,
           const AdamwCoefficients& c) {
  const T scale = static_cast<T>(c.grad_scale), decay = static_cast<T>(c.decay), eps = static_cast<T>(c.eps);
  const T beta1 = static_cast<T>(c.beta1), rest1 = static_cast<T>(1 - c.beta1);
  const T beta2 = static_cast<T>(c.beta2), rest2 = static_cast<T>(1 - c.beta2);
  const T step_size = static_cast<T>(c.step_size), inverse_root = static_cast<T>(c.inverse_root);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = grad[i] * scale;
    const T m = beta1 * exp_avg[i] + rest1 * g;
    const T v = beta2 * exp_avg_sq[i] + rest2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    weight[i] -= step_size * (m / (std::sqrt(v) * inverse_root + eps)) + decay * weight[i];
  }
}

template <class T>
void sgd(T* __restrict weight, const T* __restrict grad, T* __restrict momentum_buffer, std::int64_t count, const SgdCoefficients& c) {
  const T scale = static_cast<T>(c.grad_scale), decay = static_cast<T>(c.weight_decay);
  const T momentum = static_cast<T>(c.momentum), lr = static_cast<T>(c.lr);
  if (momentum_buffer == nullptr) {
    for (std::int64_t i = 0; i < count; ++i) weight[i] -= lr * (grad[i] * scale + decay * weight[i]);
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    momentum_buffer[i] = momentum * momentum_buffer[i] + (grad[i] * scale + decay * weight[i]);
    weight[i] -= lr * momentum_buffer[i];
  }
}

template <class T>
double sum_of_squares(const T* values, std::int64_t count) {
  constexpr int kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      const double x = values[i + lane];
      lanes[lane] += x * x;
    }
  }
  for (int lane = 0; i < count; ++i, ++lane) lanes[lane] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
std::int64_t count_zeros(const T* values, std::int64_t count) {
  std::int64_t zeros = 0;
  for (std::int64_t i = 0; i < count; ++i) zeros += values[i] == 0;
  return zeros;
}

template void adamw<float>(float*, const float*, float*, float*, std::int64_t, const AdamwCoefficients&);
template void adamw<double>(double*, const double*, double*, double*, std::int64_t, const AdamwCoefficients&);
template void sgd<float>(float*, const float*, float*, std::int64_t, const SgdCoefficients&);
template void sgd<double>(double*, const double*, double*, std::int64_t, const SgdCoefficients&);
template double sum_of_squares<float>(const float*, std::int64_t);
template double sum_of_squares<double>(const double*, std::int64_t);
template std::int64_t count_zeros<float>(const float*, std::int64_t);
template std::int64_t count_zeros<double>(const double*, std::int64_t);

}  // namespace megatron::kernels
