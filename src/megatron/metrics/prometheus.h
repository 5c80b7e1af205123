// Exports the state of a run in Prometheus' text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// Stores the latest values. Thread-safe.
class PrometheusCollector {
 public:
  void add(const StepMetrics& step);
  void add(const EvaluationMetrics& evaluation);
  /// Returns every metric with HELP and TYPE lines. Names begin with megatron_training_ and
  /// megatron_evaluation_.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  StepMetrics step_;
  double last_step_time_ = 0;  ///< seconds since 1970
  std::int64_t steps_ = 0, skipped_updates_ = 0;
  std::map<std::string, NamedLosses> evaluations_;  ///< by split
};

/// Replaces the file `path` with `text` atomically. UserError when it cannot be written.
void write_prometheus_file(const std::filesystem::path& path, const std::string& text);

}  // namespace megatron
