#include "cuda_plugin/operations.h"
#include "kernels/cuda/launchers.h"

namespace megatron::cuda_plugin {
namespace {

void sum_squares(const kernels::UpdatePlan& plan) { check_launch("sum_squares", kernels::cuda::sum_squares(plan, current_stream())); }

void settle(const kernels::UpdatePlan& plan, const kernels::StepInputs& inputs) {
  check_launch("settle", kernels::cuda::settle(plan, inputs, current_stream()));
}

void count_zeros(const kernels::UpdatePlan& plan) { check_launch("count_zeros", kernels::cuda::count_zeros(plan, current_stream())); }

void fold_sums(const kernels::UpdatePlan& plan) { check_launch("fold_sums", kernels::cuda::fold_sums(plan, current_stream())); }

void settle_zeros(const kernels::UpdatePlan& plan) { check_launch("settle_zeros", kernels::cuda::settle_zeros(plan, current_stream())); }

void update(const kernels::UpdatePlan& plan) { check_launch("update", kernels::cuda::update(plan, current_stream())); }

}  // namespace

constinit const kernels::OptimizerOperations kOptimizerOperations{
    .sum_squares = sum_squares, .count_zeros = count_zeros, .fold_sums = fold_sums, .settle = settle, .settle_zeros = settle_zeros, .update = update};

}  // namespace megatron::cuda_plugin
