#include "megatron/training/observability/prometheus_server.h"

#include <httplib.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Sets only SO_REUSEADDR. The library's default also sets SO_REUSEPORT, which would silently share
/// the port with another process.
void set_socket_options(socket_t socket) {
  const int yes = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
}

[[noreturn]] void refuse(const std::string& host, int port) {
  const int code = errno;
  if (code == 0 || code == EADDRNOTAVAIL)  // 0: the name is unknown
    throw UserError({"--prometheus-host " + host, "is not an address of this host",
                     "give 127.0.0.1, 0.0.0.0 (every address) or one of this host's addresses"});
  throw UserError({"--prometheus-port " + std::to_string(port) + " cannot be opened",
                   std::strerror(code),
                   code == EACCES ? "choose a port from 1024 on"
                                  : "choose another port, or end the process that has it"});
}

}  // namespace

struct PrometheusServer::Server {
  httplib::Server http;
  int port = 0;
  std::atomic<bool> has_ended = false;
  std::thread thread;
};

PrometheusServer::PrometheusServer(const Address& address, std::function<std::string()> text)
    : server_(std::make_unique<Server>()) {
  httplib::Server& http = server_->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(1); };
  http.set_keep_alive_timeout(1);
  http.set_socket_options(set_socket_options);
  http.Get("/metrics",
           [text = std::move(text)](const httplib::Request&, httplib::Response& response) {
             response.set_content(text(), "text/plain; version=0.0.4; charset=utf-8");
           });
  errno = 0;
  const auto& [port, host] = address;
  server_->port =
      port == 0 ? http.bind_to_any_port(host) : (http.bind_to_port(host, port) ? port : -1);
  if (server_->port < 0) refuse(host, port);
  server_->thread = std::thread([server = server_.get()] {
    server->http.listen_after_bind();
    server->has_ended = true;
  });
}

PrometheusServer::~PrometheusServer() {
  while (!server_->http.is_running() && !server_->has_ended) std::this_thread::yield();
  server_->http.stop();
  server_->thread.join();
}

int PrometheusServer::port() const { return server_->port; }

}  // namespace megatron
