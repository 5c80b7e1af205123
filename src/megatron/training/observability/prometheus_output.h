// Writes the metrics to --prometheus-file and serves them on --prometheus-port.
#pragma once

#include <optional>
#include <string>

#include "megatron/metrics/prometheus.h"
#include "megatron/training/observability/prometheus_server.h"

namespace megatron {

struct LoggerConfig;

class PrometheusOutput {
 public:
  /// Returns whether one of the two flags is given.
  static bool is_wanted(const LoggerConfig& logger);

  /// Writes the file and starts the server. UserError when the file cannot be written, or the port
  /// is in use.
  explicit PrometheusOutput(const LoggerConfig& logger);

  /// Keeps the metrics of a step or evaluation for the server, and writes the file. While that
  /// fails, training continues; the first failure prints a warning.
  void add(const auto& metrics) {
    collector_.add(metrics);
    write_file();
  }

 private:
  void write_file();

  std::string file_;
  bool is_file_lost_ = false;
  PrometheusCollector collector_;
  std::optional<PrometheusServer> server_;
};

}  // namespace megatron
