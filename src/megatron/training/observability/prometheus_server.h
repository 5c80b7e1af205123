// HTTP server for GET /metrics, which Prometheus scrapes. It answers on a background thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

namespace megatron {

class PrometheusServer {
 public:
  struct Address {
    int port = 0;                    ///< 0: any free port
    std::string host = "127.0.0.1";  ///< address of this host; 0.0.0.0: every one
  };
  /// Listens at the address and answers with the result of `text`, which is called on the
  /// background thread. UserError when the address is not of this host, or the port is in use or
  /// not permitted.
  PrometheusServer(const Address& address, std::function<std::string()> text);
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
