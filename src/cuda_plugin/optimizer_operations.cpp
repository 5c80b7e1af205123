// Launches the optimizer kernels on ATen's current stream.
#include "cuda_plugin/operations.h"
#include "kernels/cuda/launchers.h"

namespace megatron::cuda_plugin {
namespace {

void sum_squares(const kernels::UpdatePlan& plan) {
  check_launch("sum_squares", kernels::cuda::sum_squares(plan, current_stream()));
}

void finalize(const kernels::UpdatePlan& plan, const kernels::StepInputs& inputs) {
  check_launch("finalize", kernels::cuda::finalize(plan, inputs, current_stream()));
}

void count_zeros(const kernels::UpdatePlan& plan) {
  check_launch("count_zeros", kernels::cuda::count_zeros(plan, current_stream()));
}

void reduce_sums(const kernels::UpdatePlan& plan) {
  check_launch("reduce_sums", kernels::cuda::reduce_sums(plan, current_stream()));
}

void finalize_zeros(const kernels::UpdatePlan& plan) {
  check_launch("finalize_zeros", kernels::cuda::finalize_zeros(plan, current_stream()));
}

void update(const kernels::UpdatePlan& plan) {
  check_launch("update", kernels::cuda::update(plan, current_stream()));
}

}  // namespace

constinit const kernels::OptimizerOperations kOptimizerOperations{.sum_squares = sum_squares,
                                                                  .count_zeros = count_zeros,
                                                                  .reduce_sums = reduce_sums,
                                                                  .finalize = finalize,
                                                                  .finalize_zeros = finalize_zeros,
                                                                  .update = update};

}  // namespace megatron::cuda_plugin
