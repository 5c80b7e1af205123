// The settings of what a run prints, records and serves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace megatron {

struct LoggerConfig {
  std::int64_t log_interval = 100;
  bool log_throughput = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  bool log_max_attention_logit = false;
  std::int64_t timing_log_level = 0;
  std::string timing_log_option = "minmax";
  std::string tensorboard_dir;
  std::int64_t tensorboard_log_interval = 1, tensorboard_queue_size = 1000;
  bool log_timers_to_tensorboard = false, log_loss_scale_to_tensorboard = true,
       log_validation_ppl_to_tensorboard = false;
  bool log_memory_to_tensorboard = false, log_world_size_to_tensorboard = false;
  bool log_progress = false;
  bool log_memory = false;  ///< print the memory use of each part
  std::optional<std::int64_t> log_memory_interval;
  bool log_device_memory_used = false;
  /// Iterations between tables of each layer's norms.
  std::optional<std::int64_t> log_layer_norms_interval;
  bool log_straggler = false;               ///< compare the ranks' own times and name the slow ones
  std::int64_t straggler_minmax_count = 1;  ///< ranks shown at each end of the report
  std::int64_t straggler_ctrlr_port = 65535;  ///< rank 0's port that toggles the report
  bool disable_straggler_on_startup = false;
  /// Rewritten after every step, for the node exporter's textfile collector.
  std::string prometheus_file;
  std::optional<std::int64_t> prometheus_port;  ///< port that serves /metrics
  std::string prometheus_host = "127.0.0.1";    ///< address at which it is served
  bool profile = false;
  std::int64_t profile_step_start = 10, profile_step_end = 12;
  std::vector<std::int64_t> profile_ranks;
  std::string profile_dir;
  std::string trace;  ///< folder for the timeline of the pipeline
};

/// Returns whether --profile-step-start and --profile-step-end limit the recording: always with
/// --profile, and for --trace if one of them differs from its default. Defined in
/// profile_rules.cpp.
bool has_profile_window(const LoggerConfig& logger);

}  // namespace megatron
