// Applies an update rule element by element, with one team for each chunk, in any storage. A rule
// is a struct Rule<C> with scalars of the type C of the main weights. It is made for one chunk from
// (settings, scalars, chunk), and its element() is that of kernels/cpu/element_update.h.
#pragma once

#include "kernels/cuda/team.h"
#include "kernels/optimizer_operations.h"

namespace megatron::kernels::cuda {

/// In one round the team processes one block of a scaled state.
inline constexpr int kUpdateTeam = kStateBlock;

/// The states and the weight of an element after the update.
template <class C>
struct UpdateResult {
  C state[2];
  C weight;
};

/// Reads state `which` of element i. f16 and 8-bit states have a scale for each block.
template <class C>
MEGATRON_HOST_DEVICE C load_state(const UpdatePlan& plan, const UpdateChunk& chunk, int which,
                                  std::int64_t i) {
  const StateCode* const code = plan.types.code[which];
  if (code != nullptr)
    return static_cast<C>(code->values[static_cast<const std::uint8_t*>(chunk.state[which])[i]] *
                          chunk.state_scale[which][i / kStateBlock]);
  const C value = load_element<C>(chunk.state[which], plan.types.state[which], i);
  return plan.types.state[which] == Type::f16
             ? value * static_cast<C>(chunk.state_scale[which][i / kStateBlock])
             : value;
}

/// Returns the power of two that brings `largest`, rounded to the eleven bits of f16, into [2¹⁴,
/// 2¹⁵).
MEGATRON_HOST_DEVICE inline float block_scale(float largest) {
  if (!(largest > 0) || !(largest - largest == 0)) return 1;
  int exponent = 0;
  const float mantissa = std::frexp(largest, &exponent);
  if (std::nearbyint(mantissa * 2048) == 2048) ++exponent;
  return std::ldexp(1.0f, exponent - 15 > -126 ? exponent - 15 : -126);
}

MEGATRON_HOST_DEVICE inline bool is_scaled(const UpdatePlan& plan, const UpdateChunk& chunk,
                                           int which) {
  return chunk.state[which] != nullptr &&
         (plan.types.state[which] == Type::f16 || plan.types.code[which] != nullptr);
}

/// Stores state `which` of element i, whose block gets the scale `scale` if it has one.
template <class C>
MEGATRON_HOST_DEVICE void store_state(const UpdatePlan& plan, const UpdateChunk& chunk, int which,
                                      std::int64_t i, C value, float scale) {
  const StateCode* const code = plan.types.code[which];
  if (code != nullptr) {
    static_cast<std::uint8_t*>(chunk.state[which])[i] =
        encode_state(*code, static_cast<float>(value) / scale);
    return;
  }
  store_element(chunk.state[which], plan.types.state[which], i,
                is_scaled(plan, chunk, which) ? value / static_cast<C>(scale) : value);
}

/// Computes the update of element i and stores nothing.
template <class C, class Rule>
MEGATRON_HOST_DEVICE UpdateResult<C> updated(const UpdatePlan& plan, const UpdateChunk& chunk,
                                             const Rule& rule, std::int64_t i) {
  UpdateResult<C> result{};
  for (int which = 0; which < 2; ++which) {
    if (chunk.state[which] != nullptr) result.state[which] = load_state<C>(plan, chunk, which, i);
  }
  result.weight = rule.element(load_element<C>(chunk.grad, plan.types.grad, i),
                               static_cast<const C*>(chunk.main)[i],
                               chunk.state[0] == nullptr ? nullptr : &result.state[0],
                               chunk.state[1] == nullptr ? nullptr : &result.state[1]);
  return result;
}

/// Updates elements [begin, begin + kStateBlock) of a chunk, one in each thread.
MEGATRON_ANY_TEAM
template <class C, class Rule, class Team>
MEGATRON_HOST_DEVICE void update_block(const UpdatePlan& plan, const UpdateChunk& chunk,
                                       const Rule& rule, std::int64_t begin, const Team& team) {
  float scale[2] = {1, 1};
  for (int which = 0; which < 2; ++which) {
    if (!is_scaled(plan, chunk, which)) continue;
    const float largest = team.template max<float>([&](int thread) {
      if (begin + thread >= chunk.count) return 0.0f;
      return std::fabs(
          static_cast<float>(updated<C>(plan, chunk, rule, begin + thread).state[which]));
    });
    scale[which] =
        plan.types.code[which] != nullptr ? state_code_scale(largest) : block_scale(largest);
  }
  team.each([&](int thread) {
    const std::int64_t i = begin + thread;
    if (i >= chunk.count) return;
    const UpdateResult<C> now = updated<C>(plan, chunk, rule, i);
    for (int which = 0; which < 2; ++which) {
      if (chunk.state[which] != nullptr)
        store_state(plan, chunk, which, i, now.state[which], scale[which]);
    }
    static_cast<C*>(chunk.main)[i] = now.weight;
    if (chunk.weight != nullptr) store_element(chunk.weight, plan.types.weight, i, now.weight);
  });
  team.sync();  // after this, every thread has read the old scales
  team.each([&](int thread) {
    if (thread > 1 || !is_scaled(plan, chunk, thread)) return;
    chunk.state_scale[thread][begin / kStateBlock] = scale[thread];
  });
}

MEGATRON_ANY_TEAM
template <class C, template <class> class Rule, class Settings, class Team>
MEGATRON_HOST_DEVICE void update_chunk(const UpdatePlan& plan, const Settings& settings,
                                       std::int64_t index, const Team& team) {
  if (plan.scalars->applied == 0) return;
  const UpdateChunk& chunk = plan.chunks[index];
  const Rule<C> rule(settings, *plan.scalars, chunk);
  for (std::int64_t begin = 0; begin < chunk.count; begin += Team::size)
    update_block<C>(plan, chunk, rule, begin, team);
}

}  // namespace megatron::kernels::cuda
