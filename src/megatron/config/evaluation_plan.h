// Computes when a run evaluates and on how many samples, from --eval-iters, --eval-interval,
// --start-eval-at-iter and the batch sizes of evaluation.
#pragma once

#include <cstdint>

namespace megatron {

struct TrainingConfig;

/// The schedule and the batch sizes of evaluation.
struct EvaluationPlan {
  std::int64_t micro_batch_size = 1, data_parallel_size = 1;
  std::int64_t microbatches_per_iteration = 1;  ///< per rank
  /// Iterations of each evaluation of one validation set, and of the test. --full-validation does
  /// not use it.
  std::int64_t iterations = 0;
  std::int64_t interval = 0;  ///< training iterations between evaluations; 0: none during training
  std::int64_t first_iteration = 0;  ///< first training iteration that evaluates

  std::int64_t num_microbatches() const { return iterations * microbatches_per_iteration; }
  std::int64_t num_samples() const {
    return num_microbatches() * micro_batch_size * data_parallel_size;
  }
  bool is_due(std::int64_t iteration) const {
    return interval > 0 && iteration > 0 && iteration % interval == 0 &&
           iteration >= first_iteration;
  }
  /// Returns the number of evaluations up to and including training iteration `iteration`.
  std::int64_t evaluations_until(std::int64_t iteration) const;
};

/// Returns the plan of resolved settings. Batch sizes of evaluation default to those of training; a
/// final training batch size that is not a multiple of the micro batch size is rounded down.
EvaluationPlan evaluation_plan(const TrainingConfig& training, std::int64_t data_parallel_size = 1);

/// Returns the number of microbatches of a rank that pass through `stages` pipeline stages at once.
std::int64_t microbatches_per_pass(std::int64_t stages);

}  // namespace megatron
