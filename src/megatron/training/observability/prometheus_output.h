// Writes the metrics to --prometheus-file and serves them on --prometheus-port.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "megatron/metrics/prometheus.h"
#include "megatron/training/observability/http_endpoint.h"

namespace megatron {

struct LoggerConfig;

/// HTTP server for GET /metrics, which Prometheus scrapes.
class PrometheusServer : public HttpEndpoint {
 public:
  struct Address {
    int port = 0;                    ///< 0: any free port
    std::string host = "127.0.0.1";  ///< address of this host; 0.0.0.0: every one
  };
  /// Answers with the result of `text`, which is called on a background thread. UserError when the
  /// address is not of this host, or the port is in use or not permitted.
  PrometheusServer(const Address& address, std::function<std::string()> text)
      : HttpEndpoint({.flag = "--prometheus-port",
                      .port = address.port,
                      .host = address.host,
                      .path = "/metrics",
                      .content_type = "text/plain; version=0.0.4; charset=utf-8"},
                     std::move(text)) {}
};

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
