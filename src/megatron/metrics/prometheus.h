// The state of a run in Prometheus' text format 0.0.4
// (https://prometheus.io/docs/instrumenting/exposition_formats).
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

#include "megatron/metrics/step_metrics.h"

namespace megatron {

/// Collects the latest values; safe to read from another thread.
class PrometheusCollector {
 public:
  void add(const StepMetrics& step);
  void add(const EvaluationMetrics& evaluation);
  /// Every metric with HELP and TYPE; names begin with megatron_training_ and megatron_evaluation_.
  std::string text() const;

 private:
  mutable std::mutex mutex_;
  StepMetrics step_;
  double last_step_time_ = 0;  ///< seconds since 1970
  std::int64_t steps_ = 0, skipped_updates_ = 0;
  std::map<std::string, NamedLosses> evaluations_;  ///< by split
};

/// Replaces `path` by `text` so that a collector sees the old file or the new one; UserError when
/// it cannot be written.
void write_prometheus_file(const std::filesystem::path& path, const std::string& text);

}  // namespace megatron
