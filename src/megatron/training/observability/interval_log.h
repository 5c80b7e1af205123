// Accumulates sums over the iterations since the last log line and computes the averages that the
// line shows (Megatron's training_log).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/parallel/communicators.h"
#include "megatron/training/observability/log_lines.h"
#include "megatron/training/observability/throughput.h"
#include "megatron/training/run/train_step_result.h"

namespace megatron {

/// Returns the losses of a step as the log shows them: those of the objective, then the auxiliary
/// losses of routers.
NamedLosses logged_losses(const TrainStepResult& step);

/// Returns the samples, tokens and seconds of one step. `samples` counts where the step does not
/// say how much of them it computed.
TrainedWork trained_work(const TrainStepResult& step, double samples, double seconds = 0);

class IntervalLog {
 public:
  /// Adds one iteration. The losses of a skipped update do not enter the averages.
  void add(const TrainStepResult& step, double samples);
  std::int64_t iterations() const { return advanced_ + skipped_; }
  /// Returns the work since reset(), done in `seconds`.
  TrainedWork work(double seconds) const;
  /// Fills the fields of `report` that are averages or counts over the interval.
  void fill(IterationReport& report, double elapsed_s) const;
  void reset() { *this = {}; }

 private:
  std::int64_t advanced_ = 0, skipped_ = 0, nan_ = 0;
  TrainedWork work_ = {.squared_samples = 0};
  NamedLosses losses_;  ///< sums over the iterations
};

/// Reports this rank's communication costs (--log-comm): per axis in every step's metrics, and per
/// call in a table for each log interval.
class CommLog {
 public:
  explicit CommLog(CommCounters& counters) : counters_(counters) {}

  /// Returns the counts since the last call, per axis.
  std::vector<AxisCommStats> take_step();
  /// Discards the counts since the last call: they belong to no step.
  void skip() { counters_.take(); }
  /// Returns a table of the calls since the last table, averaged per step; "" when nothing was
  /// counted.
  std::string take_table(std::int64_t rank);

 private:
  CommCounters& counters_;
  CommCounters interval_;
  std::int64_t steps_ = 0;
};

}  // namespace megatron
