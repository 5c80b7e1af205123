// Applies an update rule element by element, sixteen at a time, and reads and writes each element
// once. A rule is a struct that is built for one chunk and has
//
//   Vec16f lanes(chunk, types, i, count, grad, w): stores the states and returns the new weights,
//     of elements i … i + 15, of which `count` exist;
//   double element(double g, double w, double* state0, double* state1): the same for one element
//     in f64; a state is null when the rule does not keep it.
//
// There is no contraction, and division and square root are IEEE's, so the bits are those of the
// formulas applied element by element on every instruction set.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/conversions.h"
#include "kernels/cpu/storage_types.h"
#include "kernels/cpu/vec16f.h"
#include "kernels/optimizer_operations.h"

namespace megatron::kernels::MEGATRON_KERNEL_ISA {

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

template <class Rule>
inline void update_lanes(const UpdateChunk& chunk, const UpdateTypes& types, const Rule& rule) {
  for (std::int64_t i = 0; i < chunk.count; i += kNumLanes) {
    const std::int64_t count = chunk.count - i;
    const Vec16f w = rule.lanes(chunk, types, i, count, load_at(chunk.grad, types.grad, i, count),
                                load_at(chunk.main, Type::f32, i, count));
    store_at(chunk.main, Type::f32, i, count, w);
    if (chunk.weight != nullptr) store_at(chunk.weight, types.weight, i, count, w);
  }
}

template <class Rule>
inline void update_doubles(const UpdateChunk& chunk, const Rule& rule) {
  auto* w = static_cast<double*>(chunk.main);
  const auto* grad = static_cast<const double*>(chunk.grad);
  auto *first = static_cast<double*>(chunk.state[0]),
       *second = static_cast<double*>(chunk.state[1]);
  for (std::int64_t i = 0; i < chunk.count; ++i)
    w[i] = rule.element(grad[i], w[i], first == nullptr ? nullptr : first + i,
                        second == nullptr ? nullptr : second + i);
}

/// Returns whether blocks of a state share a scale.
MEGATRON_KERNEL_INLINE bool is_scaled(const UpdateChunk& chunk, const UpdateTypes& types, int s) {
  return chunk.state[s] != nullptr && (types.state[s] == Type::f16 || types.code[s] != nullptr);
}

/// Updates a chunk with states whose blocks share a scale, block by block through f32.
template <class Rule>
inline void update_scaled(const UpdateChunk& chunk, const UpdateTypes& types, const Rule& rule) {
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
      if (!is_scaled(chunk, types, s)) {
        block.state[s] = element_at(chunk.state[s], types.state[s], begin);
        continue;
      }
      const float* scales = chunk.state_scale[s] + begin / kStateBlock;
      if (types.code[s] != nullptr)
        conversions().decode_bytes(*types.code[s],
                                   static_cast<const std::uint8_t*>(chunk.state[s]) + begin, scales,
                                   states[s], block.count);
      else
        conversions().decode_blocks(static_cast<const std::uint16_t*>(chunk.state[s]) + begin,
                                    scales, states[s], block.count);
      block.state[s] = states[s];
      block_types.state[s] = Type::f32;
    }
    update_lanes(block, block_types, rule);
    for (int s = 0; s < 2; ++s) {
      if (!is_scaled(chunk, types, s)) continue;
      float* scales = chunk.state_scale[s] + begin / kStateBlock;
      if (types.code[s] != nullptr)
        conversions().encode_bytes(*types.code[s], states[s],
                                   static_cast<std::uint8_t*>(chunk.state[s]) + begin, scales,
                                   block.count);
      else
        conversions().encode_blocks(states[s], static_cast<std::uint16_t*>(chunk.state[s]) + begin,
                                    scales, block.count);
    }
  }
}

/// Updates a chunk in any storage. Rule<T> is the rule with scalars of type T, made from
/// (settings, scalars, chunk).
template <template <class> class Rule, class Settings>
inline void update_elements(const UpdateChunk& chunk, const UpdateTypes& types,
                            const Settings& settings, const StepScalars& scalars) {
  if (types.main == Type::f64) return update_doubles(chunk, Rule<double>(settings, scalars, chunk));
  const Rule<float> rule(settings, scalars, chunk);
  if (is_scaled(chunk, types, 0) || is_scaled(chunk, types, 1))
    return update_scaled(chunk, types, rule);
  update_lanes(chunk, types, rule);
}

}  // namespace megatron::kernels::MEGATRON_KERNEL_ISA
