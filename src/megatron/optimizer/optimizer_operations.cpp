#include "megatron/optimizer/optimizer_operations.h"

#include <atomic>

#include "megatron/base/error.h"

namespace megatron {
namespace {

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
  if (device.is_cpu()) return cpu_optimizer_operations();
  if (device.is_meta()) return kMetaOperations;
  const kernels::OptimizerOperations* operations = cuda_slot().load(std::memory_order_acquire);
  MEGATRON_CHECK(device.is_cuda() && operations != nullptr, "weights are on ", device,
                 ", but no plugin has registered optimizer kernels for it");
  return *operations;
}

}  // namespace megatron
