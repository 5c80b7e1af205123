// HTTP server for GET /metrics, which Prometheus scrapes. It answers on a background thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace megatron {

class PrometheusServer {
 public:
  /// Listens on `port` of every interface (0: any free port) and answers with the result of `text`,
  /// which is called on the background thread. UserError when the port is in use or not permitted.
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
