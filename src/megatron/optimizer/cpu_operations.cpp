// The operations of a step on the CPU.
#include <ATen/Parallel.h>

#include "kernels/cpu/optimizer_kernels.h"
#include "megatron/optimizer/optimizer_operations.h"

namespace megatron {
namespace {

using kernels::UpdateChunk;
using kernels::UpdatePlan;

template <class Visit>
void for_each_chunk(const UpdatePlan& plan, Visit visit) {
  at::parallel_for(0, plan.num_chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) visit(i, plan.chunks[i]);
  });
}

void sum_squares(const UpdatePlan& plan) {
  for_each_chunk(
      plan, [&](std::int64_t i, const UpdateChunk& chunk) { plan.partial[i] = kernels::sum_of_squares(chunk.grad, plan.types.grad, chunk.count); });
}

void settle(const UpdatePlan& plan, const kernels::StepInputs& inputs) {
  kernels::settle_step(*plan.scalars, plan.rules, inputs, plan.partial, plan.num_chunks, [&](std::int64_t i) { return plan.chunks[i].parameter; });
}

void count_zeros(const UpdatePlan& plan, double num_padding) {
  for_each_chunk(plan, [&](std::int64_t i, const UpdateChunk& chunk) {
    plan.partial[i] = static_cast<double>(kernels::count_zeros(chunk.grad, plan.types.grad, chunk.count));
  });
  plan.scalars->num_zeros = -num_padding;
  for (std::int64_t i = 0; i < plan.num_chunks; ++i) plan.scalars->num_zeros += plan.partial[i];
}

void update(const UpdatePlan& plan) {
  if (plan.scalars->applied == 0) return;
  for_each_chunk(plan, [&](std::int64_t, const UpdateChunk& chunk) { kernels::update_chunk(chunk, plan.types, plan.rules, *plan.scalars); });
}

}  // namespace

const kernels::OptimizerOperations& cpu_optimizer_operations() {
  static const kernels::OptimizerOperations operations{sum_squares, settle, count_zeros, update};
  return operations;
}

}  // namespace megatron
