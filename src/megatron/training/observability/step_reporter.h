// What becomes visible of a training step: Megatron's log line at intervals, timers, memory, and
// every step's metrics in files.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/base/progress_bar.h"
#include "megatron/metrics/metrics_writer.h"
#include "megatron/metrics/prometheus.h"
#include "megatron/metrics/tensorboard.h"
#include "megatron/training/loop/trainer.h"
#include "megatron/training/observability/comm_log.h"
#include "megatron/training/observability/interval_log.h"
#include "megatron/training/observability/pipeline_trace.h"
#include "megatron/training/observability/profile/step_profiler.h"
#include "megatron/training/observability/prometheus_server.h"
#include "megatron/training/observability/throughput.h"

namespace megatron {

class StepReporter {
 public:
  /// Starts the interval's clock. On rank 0, metrics go to metrics.jsonl in --tensorboard-dir, or
  /// else in --save (nowhere without either), and to the event files of --tensorboard-dir. `bar` is
  /// updated, and cleared before lines.
  StepReporter(Trainer& trainer, std::ostream& out, ProgressBar& bar);

  /// Call before each step.
  void begin_step();
  /// What is to hear of the steps of the coming iteration's schedule, if anything.
  StepListener* step_listener() { return pipeline_trace_.listener(); }
  /// Call when the run stops after a whole step.
  void close();
  /// Reports the step that made iteration `progress.iteration` in `elapsed_s`. As in Megatron, the
  /// learning rate shown is that of the next step.
  void report(const TrainStepResult& step, double elapsed_s);
  /// Prints Megatron's framed line and writes the metrics of one evaluation; `suffix` tells one of
  /// several validation sets.
  void report_evaluation(std::string_view split, const std::string& where, double loss,
                         std::string_view suffix = {});

 private:
  StepMetrics metrics_of(const TrainStepResult& step, double elapsed_s);
  void print_iteration(const StepMetrics& step);
  /// After the first two iterations, and at --log-memory-interval.
  void report_memory();
  void close_interval();
  /// Gives a step's or an evaluation's metrics to every file.
  void write(const auto& metrics, const PerLayerNorms* norms = nullptr);
  /// A file that cannot be written any more costs one warning, not the run.
  void write_prometheus();

  Trainer& trainer_;
  std::ostream& out_;
  ProgressBar& bar_;
  LoggerConfig logger_;  ///< of this rank
  StepProfiler profiler_;
  PipelineTrace pipeline_trace_;
  ThroughputMeter throughput_;
  MetricsWriter metrics_;
  TensorBoard tensorboard_;
  PrometheusCollector prometheus_;
  bool is_prometheus_file_lost_ = false;
  std::optional<PrometheusServer> prometheus_server_;
  CommLog comm_log_;
  IntervalLog interval_;
  std::int64_t first_iteration_;
};

/// The interval's clock stands still while this lives: during evaluations and saves.
class PausedInterval {
 public:
  explicit PausedInterval(Timers& timers) : timers_(timers) { timers_.stop("interval-time"); }
  PausedInterval(const PausedInterval&) = delete;
  PausedInterval& operator=(const PausedInterval&) = delete;
  ~PausedInterval() { timers_.start("interval-time"); }

 private:
  Timers& timers_;
};

}  // namespace megatron
