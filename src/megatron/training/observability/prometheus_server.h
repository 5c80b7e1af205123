// HTTP server for GET /metrics, which Prometheus scrapes.
#pragma once

#include <utility>

#include "megatron/training/observability/http_endpoint.h"

namespace megatron {

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

}  // namespace megatron
