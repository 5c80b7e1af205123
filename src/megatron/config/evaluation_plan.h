// When a run evaluates, and on how many samples: --eval-iters, --eval-interval,
// --start-eval-at-iter and the batch sizes of evaluation.
#pragma once

#include <cstdint>

#include "megatron/config/settings.h"

namespace megatron {

struct EvaluationPlan {
  std::int64_t micro_batch_size = 1, data_parallel_size = 1;
  std::int64_t microbatches_per_iteration = 1;  ///< of each rank
  std::int64_t iterations =
      0;  ///< of one evaluation of one validation set, and of the test; unused by --full-validation
  std::int64_t interval = 0;  ///< training iterations between evaluations; 0: none during training
  std::int64_t first_iteration = 0;  ///< no evaluation before it

  std::int64_t num_microbatches() const { return iterations * microbatches_per_iteration; }
  std::int64_t num_samples() const {
    return num_microbatches() * micro_batch_size * data_parallel_size;
  }
  bool is_due(std::int64_t iteration) const {
    return interval > 0 && iteration > 0 && iteration % interval == 0 &&
           iteration >= first_iteration;
  }
  /// Evaluations that training up to and including `iteration` makes.
  std::int64_t evaluations_until(std::int64_t iteration) const;
};

/// From resolved settings; the batch sizes are those of training (a last size that is no multiple
/// of the micro batch is cut) unless given.
EvaluationPlan evaluation_plan(const TrainingConfig& training, std::int64_t data_parallel_size = 1);

}  // namespace megatron
