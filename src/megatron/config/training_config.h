// The settings of a run's length, batches, validation and precision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/loss_scale_config.h"

namespace megatron {

struct TrainingConfig {
  std::int64_t micro_batch_size = 0;
  std::int64_t global_batch_size = 0;  ///< 0: micro_batch_size × data-parallel size
  std::int64_t seq_length = 0;
  std::int64_t train_iters = 0;
  std::int64_t train_samples = 0;
  /// Passes over the training data, from which the run's length is computed once they are counted.
  std::optional<double> train_epochs;
  std::int64_t eval_iters = 100;
  std::optional<std::int64_t> eval_interval;
  std::int64_t seed = 1234;
  bool calculate_per_token_loss = false;
  bool check_for_nan_in_loss_and_grad = true;
  std::vector<std::int64_t> iterations_to_skip;
  std::optional<std::int64_t> exit_interval;
  /// Iterations after which the next phase of the data begins (config/data_phase.h).
  std::vector<std::int64_t> phase_transition_iterations;
  std::optional<double> exit_duration_in_mins;
  std::string exit_signal = "SIGTERM";

  std::vector<std::int64_t> rampup_batch_size;  ///< start, increment, samples
  std::string step_batch_size_schedule;         ///< "0:768 250B:1536": threshold in tokens:size
  bool decrease_batch_size_if_needed = false;

  bool skip_train = false;
  bool full_validation = false, multiple_validation_sets = false, eval_on_start = false;
  std::vector<std::string> validation_set_names;
  std::optional<std::int64_t> eval_global_batch_size, eval_micro_batch_size, start_eval_at_iter;

  bool bf16 = false;
  bool fp16 = false;
  /// resolve() sets it with bf16, unless grad_reduce_in_bf16 is set.
  bool accumulate_allreduce_grads_in_fp32 = false;
  bool grad_reduce_in_bf16 = false;
  LossScaleConfig loss_scale;
  bool deterministic_mode = false;
};

}  // namespace megatron
