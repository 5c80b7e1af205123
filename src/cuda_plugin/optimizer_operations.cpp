// Launches the optimizer kernels on ATen's current stream.
#include "cuda_plugin/operations.h"
#include "kernels/cuda/launchers.h"

namespace megatron::cuda_plugin {
namespace {

using namespace kernels;

void sum_squares(const StatisticsPlan& plan) {
  check_launch("sum_squares", cuda::sum_squares(plan, current_stream()));
}

void count_zeros(const StatisticsPlan& plan) {
  check_launch("count_zeros", cuda::count_zeros(plan, current_stream()));
}

void reduce_sums(const StatisticsPlan& plan) {
  check_launch("reduce_sums", cuda::reduce_sums(plan, current_stream()));
}

void finalize(const StatisticsPlan& plan, const StepRules& rules, const StepInputs& inputs,
              StepScalars* scalars) {
  check_launch("finalize", cuda::finalize(plan, rules, inputs, scalars, current_stream()));
}

void finalize_zeros(const StatisticsPlan& plan, StepScalars* scalars) {
  check_launch("finalize_zeros", cuda::finalize_zeros(plan, scalars, current_stream()));
}

void adamw(const UpdatePlan& plan, const AdamwRule& rule) {
  check_launch("adamw", cuda::adamw(plan, rule, current_stream()));
}

void sgd(const UpdatePlan& plan, const SgdRule& rule) {
  check_launch("sgd", cuda::sgd(plan, rule, current_stream()));
}

}  // namespace

constinit const OptimizerOperations kOptimizerOperations{.sum_squares = sum_squares,
                                                         .count_zeros = count_zeros,
                                                         .reduce_sums = reduce_sums,
                                                         .finalize = finalize,
                                                         .finalize_zeros = finalize_zeros,
                                                         .adamw = adamw,
                                                         .sgd = sgd};

}  // namespace megatron::cuda_plugin
