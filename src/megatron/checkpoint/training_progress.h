// The training state besides tensors that a run needs to resume exactly.
#pragma once

#include <cstdint>

namespace megatron {

struct TrainingProgress {
  std::int64_t iteration = 0;
  std::int64_t consumed_train_samples = 0;
  std::int64_t skipped_train_samples = 0;
  std::int64_t consumed_valid_samples = 0;
  std::int64_t scheduler_num_steps = 0;  ///< counted in samples
  double floating_point_operations = 0;
  bool operator==(const TrainingProgress&) const = default;
};

}  // namespace megatron
