// GET /metrics: what Prometheus scrapes. Answers on a thread of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace megatron {

class PrometheusServer {
 public:
  /// Listens on `port` of every interface (0: any free one) and answers with what `text` returns,
  /// which is called on another thread. UserError when the port is in use or not allowed.
  PrometheusServer(int port, std::function<std::string()> text);
  PrometheusServer(const PrometheusServer&) = delete;
  PrometheusServer& operator=(const PrometheusServer&) = delete;
  /// Stops listening.
  ~PrometheusServer();
  int port() const;

 private:
  struct Server;
  std::unique_ptr<Server> server_;
};

}  // namespace megatron
