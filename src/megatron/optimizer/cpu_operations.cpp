// Implements the operations of an optimizer step for the CPU.
#include <ATen/Parallel.h>

#include <numeric>

#include "kernels/cpu/optimizer_kernels.h"
#include "megatron/optimizer/optimizer_operations.h"

namespace megatron {
namespace {

using kernels::UpdateChunk;
using kernels::UpdatePlan;

template <class Visit>
void for_each_chunk(const UpdatePlan& plan, Visit visit) {
  at::parallel_for(0, plan.num_chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) visit(plan.chunks[i]);
  });
}

void sum_squares(const UpdatePlan& plan) {
  for_each_chunk(plan, [&](const UpdateChunk& chunk) {
    plan.sums[chunk.slot] = kernels::sum_of_squares(chunk, plan.types.grad);
  });
}

void count_zeros(const UpdatePlan& plan) {
  for_each_chunk(plan, [&](const UpdateChunk& chunk) {
    plan.sums[chunk.slot] = static_cast<double>(kernels::count_zeros(chunk, plan.types.grad));
  });
}

void reduce_sums(const UpdatePlan& plan) {
  const kernels::SumTable& table = plan.table;
  for (std::int64_t p = 0; p < table.num_parameters; ++p)
    plan.parameter_sums[p] =
        kernels::sum_slots(table.slots, plan.sums, table.first_slot[p], table.first_slot[p + 1]);
}

void finalize(const UpdatePlan& plan, const kernels::StepInputs& inputs) {
  kernels::finalize_step(*plan.scalars, plan.rules, inputs, plan.parameter_sums,
                         plan.table.num_parameters);
}

void finalize_zeros(const UpdatePlan& plan) {
  plan.scalars->num_zeros =
      std::accumulate(plan.parameter_sums, plan.parameter_sums + plan.table.num_parameters, 0.0);
}

void update(const UpdatePlan& plan) {
  if (plan.scalars->applied == 0) return;
  for_each_chunk(plan, [&](const UpdateChunk& chunk) {
    kernels::update_chunk(chunk, plan.types, plan.rules, *plan.scalars);
  });
}

}  // namespace

const kernels::OptimizerOperations& cpu_optimizer_operations() {
  static const kernels::OptimizerOperations operations{sum_squares, count_zeros,    reduce_sums,
                                                       finalize,    finalize_zeros, update};
  return operations;
}

}  // namespace megatron
