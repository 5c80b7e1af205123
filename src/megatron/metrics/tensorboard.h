// Writes Megatron's TensorBoard charts: its tags, over iterations and, as "<tag> vs samples", over
// samples (training_log and evaluate_and_print_results).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/logger_config.h"
#include "megatron/metrics/event_file.h"
#include "megatron/metrics/metrics_writer.h"
#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// Values that are charted at the end of a log interval.
struct IntervalMetrics {
  std::int64_t iteration = 0;
  double iteration_s = 0;                ///< average time of an iteration
  std::optional<double> throughput;      ///< TFLOP/s per device, with --log-throughput
  std::vector<TaggedValue> timer_means;  ///< seconds per iteration of each timer
};

class TensorBoard {
 public:
  /// Writes to --tensorboard-dir. A run that resumes after `iteration` first drops later
  /// events of its own earlier part, but no events of other runs. A run that starts at 0 makes
  /// readers discard earlier points in the folder.
  TensorBoard(const LoggerConfig& config, std::int64_t iteration,
              ExistingMetrics earlier = ExistingMetrics::same_run);

  /// Adds the settings as Megatron does: one text per name.
  void add_settings(const std::vector<std::pair<std::string, std::string>>& settings,
                    std::int64_t iteration);
  void add(const StepMetrics& step);
  void add(const IntervalMetrics& interval);
  void add(const EvaluationMetrics& evaluation);
  /// Writes queued events. Call it at the end of each log interval, so that a killed run loses at
  /// most one interval.
  void flush();

 private:
  void add_over_both(const std::vector<TaggedValue>& values, std::int64_t iteration,
                     std::int64_t samples);

  LoggerConfig config_;
  EventFileWriter file_;
};

}  // namespace megatron
