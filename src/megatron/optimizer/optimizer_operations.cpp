#include "megatron/optimizer/optimizer_operations.h"

#include <ATen/Parallel.h>

#include <atomic>
#include <numeric>

#include "kernels/cpu/adamw.h"
#include "kernels/cpu/gradient_norm.h"
#include "kernels/cpu/sgd.h"
#include "megatron/base/error.h"

namespace megatron {
namespace {

using kernels::StatisticsPlan;
using kernels::UpdatePlan;

template <class Plan, class Visit>
void for_each_chunk(const Plan& plan, Visit visit) {
  at::parallel_for(0, plan.num_chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) visit(plan.chunks[i]);
  });
}

void sum_squares(const StatisticsPlan& plan) {
  for_each_chunk(plan, [&](const kernels::GradientChunk& chunk) {
    plan.sums[chunk.slot] = kernels::sum_of_squares(chunk, plan.grad);
  });
}

void count_zeros(const StatisticsPlan& plan) {
  for_each_chunk(plan, [&](const kernels::GradientChunk& chunk) {
    plan.sums[chunk.slot] =
        static_cast<double>(kernels::gradient_norm_kernels().count_zeros(chunk, plan.grad));
  });
}

void reduce_sums(const StatisticsPlan& plan) {
  const kernels::SumTable& table = plan.table;
  for (std::int64_t p = 0; p < table.num_parameters; ++p)
    plan.parameter_sums[p] =
        kernels::sum_slots(table.slots, plan.sums, table.first_slot[p], table.first_slot[p + 1]);
}

void finalize(const StatisticsPlan& plan, const kernels::StepRules& rules,
              const kernels::StepInputs& inputs, kernels::StepScalars* scalars) {
  kernels::finalize_step(*scalars, rules, inputs, plan.parameter_sums, plan.table.num_parameters);
}

void finalize_zeros(const StatisticsPlan& plan, kernels::StepScalars* scalars) {
  scalars->num_zeros =
      std::accumulate(plan.parameter_sums, plan.parameter_sums + plan.table.num_parameters, 0.0);
}

/// Applies the rule whose kernel is `update` to every chunk.
template <class Update, class Rule>
void update_chunks(const UpdatePlan& plan, Update update, const Rule& rule) {
  if (plan.scalars->applied == 0) return;
  for_each_chunk(plan, [&](const kernels::UpdateChunk& chunk) {
    update(chunk, plan.types, rule, *plan.scalars);
  });
}

void adamw(const UpdatePlan& plan, const kernels::AdamwRule& rule) {
  update_chunks(plan, kernels::adamw_kernels().update, rule);
}

void sgd(const UpdatePlan& plan, const kernels::SgdRule& rule) {
  update_chunks(plan, kernels::sgd_kernels().update, rule);
}

/// They share chunks evenly among the intra-op threads.
constexpr kernels::OptimizerOperations kCpuOperations{
    sum_squares, count_zeros, reduce_sums, finalize, finalize_zeros, adamw, sgd};

std::atomic<const kernels::OptimizerOperations*>& cuda_slot() {
  static std::atomic<const kernels::OptimizerOperations*> operations{nullptr};
  return operations;
}

constexpr auto kNoop = [](const kernels::StatisticsPlan&) {};
constexpr kernels::OptimizerOperations kMetaOperations{
    .sum_squares = kNoop,
    .count_zeros = kNoop,
    .reduce_sums = kNoop,
    .finalize = [](const kernels::StatisticsPlan&, const kernels::StepRules&,
                   const kernels::StepInputs&, kernels::StepScalars*) {},
    .finalize_zeros = [](const kernels::StatisticsPlan&, kernels::StepScalars*) {},
    .adamw = [](const kernels::UpdatePlan&, const kernels::AdamwRule&) {},
    .sgd = [](const kernels::UpdatePlan&, const kernels::SgdRule&) {}};

}  // namespace

void register_cuda_optimizer_operations(const kernels::OptimizerOperations& operations) {
  cuda_slot().store(&operations, std::memory_order_release);
}

const kernels::OptimizerOperations& optimizer_operations(c10::Device device) {
  if (device.is_cpu()) return kCpuOperations;
  if (device.is_meta()) return kMetaOperations;
  const kernels::OptimizerOperations* operations = cuda_slot().load(std::memory_order_acquire);
  MEGATRON_CHECK(device.is_cuda() && operations != nullptr, "weights are on ", device,
                 ", but no plugin has registered optimizer kernels for it");
  return *operations;
}

}  // namespace megatron
