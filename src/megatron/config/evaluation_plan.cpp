#include "megatron/config/evaluation_plan.h"

#include <algorithm>

#include "megatron/config/training_config.h"

namespace megatron {

std::int64_t EvaluationPlan::evaluations_until(std::int64_t iteration) const {
  if (interval < 1 || iteration < first_iteration) return 0;
  return iteration / interval - std::max<std::int64_t>(first_iteration - 1, 0) / interval;
}

EvaluationPlan evaluation_plan(const TrainingConfig& training, std::int64_t data_parallel_size) {
  const std::int64_t micro = training.eval_micro_batch_size.value_or(training.micro_batch_size);
  const std::int64_t samples = training.eval_global_batch_size.value_or(training.global_batch_size);
  return {.micro_batch_size = micro,
          .data_parallel_size = data_parallel_size,
          .microbatches_per_iteration =
              std::max<std::int64_t>(1, samples / (micro * data_parallel_size)),
          .iterations = training.eval_iters,
          .interval = training.eval_interval.value_or(0),
          .first_iteration = training.start_eval_at_iter.value_or(0)};
}

std::int64_t microbatches_per_pass(std::int64_t stages) {
  constexpr std::int64_t kMicrobatchesPerStage = 4;
  return stages == 1 ? 1 : kMicrobatchesPerStage * stages;
}

}  // namespace megatron
