// Statistics of the gradients and the update rules, with one team for each chunk. The formulas are
// those of kernels/cpu/optimizer_update.cpp. All scalars of the step are read from the device's
// memory.
#pragma once

#include "kernels/cuda/team.h"
#include "kernels/optimizer_operations.h"

namespace megatron::kernels::cuda {

inline constexpr int kChunkTeam =
    kStateBlock;  // in one round the team processes one block of an f16 state.
static_assert(kChunkTeam == kChunkElements / kStateBlock, "a thread for each block of a chunk");

/// Stores the sum over chunk `index` in `value`.
MEGATRON_ANY_TEAM
template <class Team>
MEGATRON_HOST_DEVICE void store_sum(const UpdatePlan& plan, std::int64_t index, const Team& team,
                                    double value) {
  double* to = plan.sums + plan.chunks[index].slot;
  team.each([=](int thread) {
    if (thread == 0) *to = value;
  });
}

MEGATRON_ANY_TEAM
template <class Team>
MEGATRON_HOST_DEVICE void square_chunk(const UpdatePlan& plan, std::int64_t index,
                                       const Team& team) {
  const UpdateChunk& chunk = plan.chunks[index];
  const void* grad = chunk.grad;
  const std::int64_t count = chunk.count, skip_begin = chunk.skip_begin, skip_end = chunk.skip_end;
  const Type type = plan.types.grad;
  store_sum(plan, index, team, team.template sum_of_runs<double>([=](int run, int lane) {
    const std::int64_t begin = run * kStateBlock,
                       end = begin + kStateBlock < count ? begin + kStateBlock : count;
    double partial = 0;
    for (std::int64_t i = begin + lane; i < end; i += Team::kLanes) {
      const double g = i >= skip_begin && i < skip_end ? 0 : load_element<double>(grad, type, i);
      partial += g * g;
    }
    return partial;
  }));
}

MEGATRON_ANY_TEAM
template <class Team>
MEGATRON_HOST_DEVICE void count_chunk_zeros(const UpdatePlan& plan, std::int64_t index,
                                            const Team& team) {
  const UpdateChunk& chunk = plan.chunks[index];
  const void* grad = chunk.grad;
  const std::int64_t count = chunk.count, skip_begin = chunk.skip_begin, skip_end = chunk.skip_end;
  const Type type = plan.types.grad;
  store_sum(plan, index, team, team.template sum<double>([=](int thread) {
    double partial = 0;
    for (std::int64_t i = thread; i < count; i += Team::size) {
      if (i < skip_begin || i >= skip_end)
        partial += load_element<double>(grad, type, i) == 0 ? 1 : 0;
    }
    return partial;
  }));
}

/// Runs with one thread for each parameter.
MEGATRON_HOST_DEVICE inline void reduce_sum(const UpdatePlan& plan, std::int64_t parameter) {
  const std::int64_t* first = plan.table.first_slot + parameter;
  plan.parameter_sums[parameter] = sum_slots(plan.table.slots, plan.sums, first[0], first[1]);
}

/// Runs with one thread.
MEGATRON_HOST_DEVICE inline void finalize(const UpdatePlan& plan, const StepInputs& inputs) {
  finalize_step(*plan.scalars, plan.rules, inputs, plan.parameter_sums, plan.table.num_parameters);
}

/// Runs with one thread.
MEGATRON_HOST_DEVICE inline void finalize_zeros(const UpdatePlan& plan) {
  double sum = 0;
  for (std::int64_t p = 0; p < plan.table.num_parameters; ++p) sum += plan.parameter_sums[p];
  plan.scalars->num_zeros = sum;
}

/// The scalars of a step as one chunk uses them. C is the type of the main weights.
template <class C>
struct ChunkScalars {
  UpdateRule rule;
  C grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, eps, step_size,
      inv_sqrt_bias_correction2, decay;  ///< AdamW; decay = lr·weight_decay
  C momentum, lr, weight_decay;          ///< SGD
};

template <class C>
MEGATRON_HOST_DEVICE ChunkScalars<C> chunk_scalars(const UpdatePlan& plan,
                                                   const UpdateChunk& chunk) {
  const StepScalars& s = *plan.scalars;
  const StepRules& r = plan.rules;
  const double lr = s.lr[chunk.group], weight_decay = chunk.is_decayed ? s.weight_decay : 0;
  return {r.rule,
          static_cast<C>(s.grad_scale),
          static_cast<C>(r.beta1),
          static_cast<C>(1 - r.beta1),
          static_cast<C>(r.beta2),
          static_cast<C>(1 - r.beta2),
          static_cast<C>(r.eps),
          static_cast<C>(lr / s.bias_correction1),
          static_cast<C>(1 / square_root(s.bias_correction2)),
          static_cast<C>(lr * weight_decay),
          static_cast<C>(r.momentum),
          static_cast<C>(lr),
          static_cast<C>(weight_decay)};
}

/// The states and the weight of an element after the update.
template <class C>
struct UpdateResult {
  C state[2];
  C weight;
};

/// Reads state `which` of element i. f16 states have a scale for each block.
template <class C>
MEGATRON_HOST_DEVICE C load_state(const UpdatePlan& plan, const UpdateChunk& chunk, int which,
                                  std::int64_t i) {
  const C value = load_element<C>(chunk.state[which], plan.types.state[which], i);
  return plan.types.state[which] == Type::f16
             ? value * static_cast<C>(chunk.state_scale[which][i / kStateBlock])
             : value;
}

/// Computes the update of element i and stores nothing.
template <class C>
MEGATRON_HOST_DEVICE UpdateResult<C> updated(const UpdatePlan& plan, const UpdateChunk& chunk,
                                             const ChunkScalars<C>& s, std::int64_t i) {
  const C g = load_element<C>(chunk.grad, plan.types.grad, i) * s.grad_scale,
          weight = static_cast<const C*>(chunk.main)[i];
  if (s.rule == UpdateRule::adamw) {
    const C m = s.beta1 * load_state<C>(plan, chunk, 0, i) + s.one_minus_beta1 * g;
    const C v = s.beta2 * load_state<C>(plan, chunk, 1, i) + s.one_minus_beta2 * (g * g);
    return {{m, v},
            weight - (s.step_size * (m / (square_root(v) * s.inv_sqrt_bias_correction2 + s.eps)) +
                      s.decay * weight)};
  }
  C step = g + s.weight_decay * weight;
  if (chunk.state[0] != nullptr) step = s.momentum * load_state<C>(plan, chunk, 0, i) + step;
  return {{step, C(0)}, weight - s.lr * step};
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

/// Updates elements [begin, begin + kStateBlock) of a chunk, one in each thread.
MEGATRON_ANY_TEAM
template <class C, class Team>
MEGATRON_HOST_DEVICE void update_block(const UpdatePlan& plan, const UpdateChunk& chunk,
                                       const ChunkScalars<C>& scalars, std::int64_t begin,
                                       const Team& team) {
  float scale[2] = {1, 1};
  for (int which = 0; which < 2; ++which) {
    if (chunk.state[which] == nullptr || plan.types.state[which] != Type::f16) continue;
    scale[which] = block_scale(team.template max<float>([&](int thread) {
      if (begin + thread >= chunk.count) return 0.0f;
      return std::fabs(
          static_cast<float>(updated(plan, chunk, scalars, begin + thread).state[which]));
    }));
  }
  team.each([&](int thread) {
    const std::int64_t i = begin + thread;
    if (i >= chunk.count) return;
    const UpdateResult<C> now = updated(plan, chunk, scalars, i);
    for (int which = 0; which < 2; ++which) {
      if (chunk.state[which] == nullptr) continue;
      const bool is_scaled = plan.types.state[which] == Type::f16;
      store_element(chunk.state[which], plan.types.state[which], i,
                    is_scaled ? now.state[which] / static_cast<C>(scale[which]) : now.state[which]);
    }
    static_cast<C*>(chunk.main)[i] = now.weight;
    if (chunk.weight != nullptr) store_element(chunk.weight, plan.types.weight, i, now.weight);
  });
  team.sync();  // after this, every thread has read the old scales
  team.each([&](int thread) {
    if (thread > 1 || chunk.state[thread] == nullptr || plan.types.state[thread] != Type::f16)
      return;
    chunk.state_scale[thread][begin / kStateBlock] = scale[thread];
  });
}

MEGATRON_ANY_TEAM
template <class C, class Team>
MEGATRON_HOST_DEVICE void update_chunk(const UpdatePlan& plan, std::int64_t index,
                                       const Team& team) {
  if (plan.scalars->applied == 0) return;
  const UpdateChunk& chunk = plan.chunks[index];
  const ChunkScalars<C> scalars = chunk_scalars<C>(plan, chunk);
  for (std::int64_t begin = 0; begin < chunk.count; begin += Team::size)
    update_block(plan, chunk, scalars, begin, team);
}

}  // namespace megatron::kernels::cuda
