// The update rules, compiled once for each instruction set. They process sixteen elements at a
// time, and read and write each element once. There is no contraction, and division and square root
// are IEEE's, so the bits are those of the formulas applied element by element.
#include "kernels/cpu/optimizer_update.h"

#include <algorithm>
#include <cmath>

#include "kernels/cpu/block_squares.h"
#include "kernels/cpu/conversions.h"
#include "kernels/cpu/dispatch.h"
#include "kernels/cpu/vec16f.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

/// AdamW (Loshchilov and Hutter 2019) with the scalars of one step precomputed: m ← beta1·m + (1 −
/// beta1)·g and v ← beta2·v + (1 − beta2)·g² for g = grad_scale·gradient, then w ← w − (step_size·m
/// / (√v·inv_sqrt_bias_correction2 + eps) + decay·w).
template <class T>
struct Adamw {
  T grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size,
      inv_sqrt_bias_correction2;

  Adamw(const StepRules& rules, const StepScalars& scalars, const UpdateChunk& chunk)
      : grad_scale(static_cast<T>(scalars.grad_scale)),
        decay(
            static_cast<T>(chunk.is_decayed ? scalars.lr[chunk.group] * scalars.weight_decay : 0)),
        beta1(static_cast<T>(rules.beta1)),
        one_minus_beta1(static_cast<T>(1 - rules.beta1)),
        beta2(static_cast<T>(rules.beta2)),
        one_minus_beta2(static_cast<T>(1 - rules.beta2)),
        eps(static_cast<T>(rules.eps)),
        step_size(static_cast<T>(scalars.lr[chunk.group] / scalars.bias_correction1)),
        inv_sqrt_bias_correction2(static_cast<T>(1 / std::sqrt(scalars.bias_correction2))) {}
};

/// SGD with L2 decay: b ← momentum·b + g + weight_decay·w, then w ← w − lr·b. Without a momentum
/// buffer b = g + weight_decay·w.
template <class T>
struct Sgd {
  T grad_scale, weight_decay, momentum, lr;

  Sgd(const StepRules& rules, const StepScalars& scalars, const UpdateChunk& chunk)
      : grad_scale(static_cast<T>(scalars.grad_scale)),
        weight_decay(static_cast<T>(chunk.is_decayed ? scalars.weight_decay : 0)),
        momentum(static_cast<T>(rules.momentum)),
        lr(static_cast<T>(scalars.lr[chunk.group])) {}
};

inline Vec16f load_at(const void* from, Type type, std::int64_t i, std::int64_t count) {
  if (type == Type::bf16) return load_partial(static_cast<const Bf16*>(from) + i, count, 0);
  if (type == Type::f16) return load_partial(static_cast<const F16*>(from) + i, count, 0);
  return load_partial(static_cast<const float*>(from) + i, count, 0);
}

inline void store_at(void* to, Type type, std::int64_t i, std::int64_t count, Vec16f x) {
  if (type == Type::bf16) return store_partial(static_cast<Bf16*>(to) + i, count, x);
  if (type == Type::f16) return store_partial(static_cast<F16*>(to) + i, count, x);
  store_partial(static_cast<float*>(to) + i, count, x);
}

/// Calls rule(i, count, gradient, weight) for sixteen elements at a time. It returns the new
/// weight.
template <class Rule>
void for_lanes(const UpdateChunk& chunk, const UpdateTypes& types, Rule rule) {
  for (std::int64_t i = 0; i < chunk.count; i += kNumLanes) {
    const std::int64_t count = chunk.count - i;
    const Vec16f w = rule(i, count, load_at(chunk.grad, types.grad, i, count),
                          load_at(chunk.main, Type::f32, i, count));
    store_at(chunk.main, Type::f32, i, count, w);
    if (chunk.weight != nullptr) store_at(chunk.weight, types.weight, i, count, w);
  }
}

inline void adamw_lanes(const UpdateChunk& chunk, const UpdateTypes& types, const Adamw<float>& a) {
  const Vec16f scale = broadcast(a.grad_scale), decay = broadcast(a.decay),
               beta1 = broadcast(a.beta1), one_minus_beta1 = broadcast(a.one_minus_beta1),
               beta2 = broadcast(a.beta2), one_minus_beta2 = broadcast(a.one_minus_beta2);
  const Vec16f eps = broadcast(a.eps), step_size = broadcast(a.step_size),
               inv_sqrt_bias_correction2 = broadcast(a.inv_sqrt_bias_correction2);
  for_lanes(chunk, types, [&](std::int64_t i, std::int64_t count, Vec16f grad, Vec16f w) {
    const Vec16f g = grad * scale;
    const Vec16f m =
        beta1 * load_at(chunk.state[0], types.state[0], i, count) + one_minus_beta1 * g;
    const Vec16f v =
        beta2 * load_at(chunk.state[1], types.state[1], i, count) + one_minus_beta2 * (g * g);
    store_at(chunk.state[0], types.state[0], i, count, m);
    store_at(chunk.state[1], types.state[1], i, count, v);
    return w - (step_size * (m / (square_root(v) * inv_sqrt_bias_correction2 + eps)) + decay * w);
  });
}

inline void sgd_lanes(const UpdateChunk& chunk, const UpdateTypes& types, const Sgd<float>& s) {
  const Vec16f scale = broadcast(s.grad_scale), decay = broadcast(s.weight_decay),
               momentum = broadcast(s.momentum), lr = broadcast(s.lr);
  for_lanes(chunk, types, [&](std::int64_t i, std::int64_t count, Vec16f grad, Vec16f w) {
    const Vec16f g = grad * scale + decay * w;
    if (chunk.state[0] == nullptr) return w - lr * g;
    const Vec16f b = momentum * load_at(chunk.state[0], types.state[0], i, count) + g;
    store_at(chunk.state[0], types.state[0], i, count, b);
    return w - lr * b;
  });
}

inline void update_lanes(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                         const StepScalars& scalars) {
  if (rules.rule == UpdateRule::adamw) {
    adamw_lanes(chunk, types, Adamw<float>(rules, scalars, chunk));
  } else {
    sgd_lanes(chunk, types, Sgd<float>(rules, scalars, chunk));
  }
}

inline void update_doubles(const UpdateChunk& chunk, const StepRules& rules,
                           const StepScalars& scalars) {
  auto* w = static_cast<double*>(chunk.main);
  const auto* grad = static_cast<const double*>(chunk.grad);
  auto *first = static_cast<double*>(chunk.state[0]),
       *second = static_cast<double*>(chunk.state[1]);
  const Adamw<double> a(rules, scalars, chunk);
  const Sgd<double> s(rules, scalars, chunk);
  for (std::int64_t i = 0; i < chunk.count; ++i) {
    const double g = grad[i] * a.grad_scale;
    if (rules.rule == UpdateRule::adamw) {
      const double m = a.beta1 * first[i] + a.one_minus_beta1 * g,
                   v = a.beta2 * second[i] + a.one_minus_beta2 * (g * g);
      first[i] = m;
      second[i] = v;
      w[i] -=
          a.step_size * (m / (std::sqrt(v) * a.inv_sqrt_bias_correction2 + a.eps)) + a.decay * w[i];
    } else {
      double b = g + s.weight_decay * w[i];
      if (first != nullptr) first[i] = b = s.momentum * first[i] + b;
      w[i] -= s.lr * b;
    }
  }
}

/// Updates a chunk with f16 states, whose blocks share a scale, block by block through f32.
inline void update_scaled(const UpdateChunk& chunk, const UpdateTypes& types,
                          const StepRules& rules, const StepScalars& scalars) {
  float states[2][kStateBlock];
  for (std::int64_t begin = 0; begin < chunk.count; begin += kStateBlock) {
    UpdateChunk block = chunk;
    UpdateTypes block_types = types;
    block.count = std::min(kStateBlock, chunk.count - begin);
    block.main = element_at(chunk.main, Type::f32, begin);
    block.grad = static_cast<const char*>(chunk.grad) + begin * size_of(types.grad);
    if (chunk.weight != nullptr) block.weight = element_at(chunk.weight, types.weight, begin);
    for (int s = 0; s < 2; ++s) {
      if (chunk.state[s] == nullptr) continue;
      block.state[s] = element_at(chunk.state[s], types.state[s], begin);
      if (types.state[s] != Type::f16) continue;
      conversions().decode_blocks(static_cast<std::uint16_t*>(block.state[s]),
                                  chunk.state_scale[s] + begin / kStateBlock, states[s],
                                  block.count);
      block.state[s] = states[s];
      block_types.state[s] = Type::f32;
    }
    update_lanes(block, block_types, rules, scalars);
    for (int s = 0; s < 2; ++s) {
      if (chunk.state[s] == nullptr || types.state[s] != Type::f16) continue;
      auto* stored = reinterpret_cast<std::uint16_t*>(element_at(chunk.state[s], Type::f16, begin));
      conversions().encode_blocks(states[s], stored, chunk.state_scale[s] + begin / kStateBlock,
                                  block.count);
    }
  }
}

inline void update(const UpdateChunk& chunk, const UpdateTypes& types, const StepRules& rules,
                   const StepScalars& scalars) {
  const auto is_scaled = [&](int s) {
    return chunk.state[s] != nullptr && types.state[s] == Type::f16;
  };
  if (types.main == Type::f64) return update_doubles(chunk, rules, scalars);
  if (is_scaled(0) || is_scaled(1)) return update_scaled(chunk, types, rules, scalars);
  update_lanes(chunk, types, rules, scalars);
}

OptimizerKernels optimizer_kernels() { return {update, block_squares}; }

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA

MEGATRON_DISPATCH(OptimizerKernels, optimizer_kernels)
