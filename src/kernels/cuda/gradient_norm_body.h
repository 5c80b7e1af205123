// Statistics of the gradients, with one team for each chunk, and the scalars of the step, which lie
// in the device's memory.
#pragma once

#include "kernels/cuda/team.h"
#include "kernels/optimizer_operations.h"

namespace megatron::kernels::cuda {

/// A team has one thread for each element of a block.
inline constexpr int kChunkTeam = kStateBlock;
static_assert(kChunkTeam == kChunkElements / kStateBlock, "a thread for each block of a chunk");

/// Stores the sum over chunk `index` in `value`.
MEGATRON_ANY_TEAM
template <class Team>
MEGATRON_HOST_DEVICE void store_sum(const StatisticsPlan& plan, std::int64_t index,
                                    const Team& team, double value) {
  double* to = plan.sums + plan.chunks[index].slot;
  team.each([=](int thread) {
    if (thread == 0) *to = value;
  });
}

MEGATRON_ANY_TEAM
template <class Team>
MEGATRON_HOST_DEVICE void square_chunk(const StatisticsPlan& plan, std::int64_t index,
                                       const Team& team) {
  const GradientChunk& chunk = plan.chunks[index];
  const void* grad = chunk.grad;
  const std::int64_t count = chunk.count, skip_begin = chunk.skip_begin, skip_end = chunk.skip_end;
  const Type type = plan.grad;
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
MEGATRON_HOST_DEVICE void count_chunk_zeros(const StatisticsPlan& plan, std::int64_t index,
                                            const Team& team) {
  const GradientChunk& chunk = plan.chunks[index];
  const void* grad = chunk.grad;
  const std::int64_t count = chunk.count, skip_begin = chunk.skip_begin, skip_end = chunk.skip_end;
  const Type type = plan.grad;
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
MEGATRON_HOST_DEVICE inline void reduce_sum(const StatisticsPlan& plan, std::int64_t parameter) {
  const std::int64_t* first = plan.table.first_slot + parameter;
  plan.parameter_sums[parameter] = sum_slots(plan.table.slots, plan.sums, first[0], first[1]);
}

/// Runs with one thread.
MEGATRON_HOST_DEVICE inline void finalize(const StatisticsPlan& plan, const StepRules& rules,
                                          const StepInputs& inputs, StepScalars& scalars) {
  finalize_step(scalars, rules, inputs, plan.parameter_sums, plan.table.num_parameters);
}

/// Runs with one thread.
MEGATRON_HOST_DEVICE inline void finalize_zeros(const StatisticsPlan& plan, StepScalars& scalars) {
  double sum = 0;
  for (std::int64_t p = 0; p < plan.table.num_parameters; ++p) sum += plan.parameter_sums[p];
  scalars.num_zeros = sum;
}

}  // namespace megatron::kernels::cuda
