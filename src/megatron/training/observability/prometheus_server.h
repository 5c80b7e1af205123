// HTTP server for GET /metrics, which Prometheus scrapes.
#pragma once

#include <utility>

#include "megatron/training/observability/http_endpoint.h"

namespace megatron {

class PrometheusServer : public HttpEndpoint {
 public:
  /// Listens on `port` of every interface (0: any free port) and answers with the result of `text`,
  /// which is called on a background thread. UserError when the port is in use or not permitted.
  PrometheusServer(int port, std::function<std::string()> text)
      : HttpEndpoint({.flag = "--prometheus-port",
                      .port = port,
                      .path = "/metrics",
                      .content_type = "text/plain; version=0.0.4; charset=utf-8"},
                     std::move(text)) {}
};

}  // namespace megatron
