// Megatron's charts in TensorBoard: its tags, over iterations and " vs samples" (training_log and
// evaluate_and_print_results).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/config/settings.h"
#include "megatron/metrics/event_file.h"
#include "megatron/metrics/metrics_writer.h"
#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// What is charted when a log interval closes.
struct IntervalMetrics {
  std::int64_t iteration = 0;
  double iteration_s = 0;                ///< average time of an iteration
  std::optional<double> throughput;      ///< TFLOP/s per device, with --log-throughput
  std::vector<TaggedValue> timer_means;  ///< seconds per iteration of each timer
};

class TensorBoard {
 public:
  /// Writes nothing.
  TensorBoard() = default;
  /// Writes to --tensorboard-dir, if given. A run that resumes after `iteration` first drops the
  /// later events of its earlier part, but none of another run; one that starts at 0 tells readers
  /// to forget what other runs left in the folder.
  TensorBoard(const LoggerConfig& config, std::int64_t iteration,
              ExistingMetrics earlier = ExistingMetrics::same_run);

  /// The settings, as Megatron writes them: one text per name.
  void add_settings(const std::vector<std::pair<std::string, std::string>>& settings,
                    std::int64_t iteration);
  void add(const StepMetrics& step);
  void add(const IntervalMetrics& interval);
  void add(const EvaluationMetrics& evaluation);
  /// Called when a log interval closes: a killed run loses at most the last interval.
  void flush();

 private:
  void add_over_both(const std::vector<TaggedValue>& values, std::int64_t iteration,
                     std::int64_t samples);

  LoggerConfig config_;
  std::optional<EventFileWriter> file_;
};

}  // namespace megatron
