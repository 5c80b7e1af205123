// Reports each training step: Megatron's log line at intervals, timers, memory, and metrics files
// for every step.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/logger_config.h"
#include "megatron/datasets/data_report.h"
#include "megatron/metrics/metrics_writer.h"
#include "megatron/metrics/tensorboard.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/observability/activation_recorder.h"
#include "megatron/training/observability/interval_log.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/memory_breakdown.h"
#include "megatron/training/observability/pipeline_trace.h"
#include "megatron/training/observability/profile/step_profiler.h"
#include "megatron/training/observability/prometheus_output.h"
#include "megatron/training/observability/stragglers/straggler_monitor.h"
#include "megatron/training/observability/throughput.h"
#include "megatron/training/observability/timers.h"
#include "megatron/training/run/training_state.h"

namespace megatron {

struct TrainingPlan;

/// What the reports take from other parts of the run.
struct ReportingContext {
  Timers& timers;
  Communicators* communicators = nullptr;  ///< null: single rank
  const std::vector<SplitShare>& shares;   ///< of the corpora, for the run record
  const HostMemory& memory_before_model;   ///< with --log-memory
  bool continues_saved_run = false;        ///< the run in --save; on rank 0
};

class StepReporter {
 public:
  /// Starts the interval timer. On rank 0, metrics go to metrics.jsonl in --tensorboard-dir, or in
  /// --save if that is unset (nowhere without either), and to the event files in --tensorboard-dir.
  /// The reporter updates the console's bar and clears it before it prints lines. Collective over
  /// the world, because the run record counts the parameters of all ranks.
  StepReporter(const TrainingPlan& plan, const TrainingState& state,
               const ReportingContext& context, const Console& console);

  /// Call it before each step.
  void begin_step();
  /// Returns the listener for the schedule's steps in the coming iteration; may be null.
  StepListener* step_listener();
  /// Call it when the run stops after a complete step.
  void close();
  /// Reports the step of iteration `progress.iteration`, which took `elapsed_s`. As in Megatron,
  /// the learning rate shown is that of the next step.
  void report(const TrainStepResult& step, double elapsed_s);
  /// Prints the timer "evaluate" and Megatron's validation line, and writes the metrics of one
  /// evaluation. `suffix` identifies the set when there are several validation sets.
  void report_evaluation(std::string_view split, const std::string& where,
                         const NamedLosses& losses, std::string_view suffix = {});

 private:
  void open_outputs(const ReportingContext& context);
  void open_metrics(const ReportingContext& context, ExistingMetrics existing);
  StepMetrics metrics_of(const TrainStepResult& step, double elapsed_s);
  void print_iteration(const StepMetrics& step);
  /// Returns whether memory is reported after the current iteration: the first two and every
  /// --log-memory-interval iterations.
  bool is_memory_due() const;
  /// Returns the memory of all ranks if --log-memory asks for it now, else nothing. Collective over
  /// the world.
  std::vector<MemoryTable> measure_memory_if_due();
  void print_memory(const std::vector<MemoryTable>& ranks);
  void print_stragglers(bool closes_interval);
  void close_interval();
  /// Writes the metrics of a step or evaluation to every output.
  void write(const auto& metrics, const PerLayerNorms* norms = nullptr,
             std::span<const MemoryTable> memory = {});

  const TrainingPlan& plan_;
  const TrainingState& state_;
  Timers& timers_;
  const HostMemory memory_before_model_;
  const Console console_;
  LoggerConfig logger_;  ///< this rank's settings
  ThroughputMeter throughput_;
  IntervalLog interval_;
  // An output exists when the flags ask this rank for it.
  std::optional<MetricsWriter> metrics_;
  std::optional<TensorBoard> tensorboard_;
  std::optional<PrometheusOutput> prometheus_;
  std::optional<CommLog> comm_log_;
  std::optional<StepProfiler> profiler_;
  std::optional<PipelineTrace> pipeline_trace_;
  std::optional<StragglerMonitor> stragglers_;
  std::optional<ActivationRecorder> activations_;  ///< with --log-memory
  OffloadCounters offloaded_before_step_;          ///< with --log-memory
  std::int64_t first_iteration_;
};

/// Stops the interval timer during its lifetime, for evaluations and saves.
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
