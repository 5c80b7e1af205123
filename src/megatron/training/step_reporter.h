// What becomes visible of a training step: Megatron's log line at intervals, timers, memory, and a line of metrics for every step.
#pragma once

#include <iosfwd>
#include <optional>

#include "megatron/base/progress.h"
#include "megatron/training/interval_log.h"
#include "megatron/training/metrics_writer.h"
#include "megatron/training/trainer.h"

namespace megatron {

class StepReporter {
 public:
  /// Starts the interval's clock. Metrics go to metrics.jsonl in --tensorboard-dir, or else in --save; nowhere without either. `bar` is updated, and
  /// cleared before lines.
  StepReporter(Trainer& trainer, std::ostream& out, Progress& bar);

  /// Reports the step that made iteration `progress.iteration` in `elapsed_s`. As in Megatron, the learning rate shown is that of the next step.
  void report(const TrainStepResult& step, double elapsed_s);
  /// Prints Megatron's framed line and writes the metrics of one evaluation; `suffix` tells one of several validation sets.
  void report_evaluation(std::string_view split, const std::string& where, double loss, std::string_view suffix = {});

 private:
  void print_iteration(const TrainStepResult& step, std::optional<double> norm);
  void write_metrics(const TrainStepResult& step, double elapsed_s, std::optional<double> norm);
  void print_timers();

  Trainer& trainer_;
  std::ostream& out_;
  Progress& bar_;
  MetricsWriter metrics_;
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
