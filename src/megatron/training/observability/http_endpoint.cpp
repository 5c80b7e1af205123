#include "megatron/training/observability/http_endpoint.h"

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

[[noreturn]] void refuse(const HttpEndpoint::Options& options) {
  const int code = errno;
  if (code == 0 || code == EADDRNOTAVAIL)  // 0: the name is unknown
    throw UserError({"the address " + options.host + " of " + options.flag,
                     "is not an address of this host",
                     "give 127.0.0.1, 0.0.0.0 (every address) or one of this host's addresses"});
  throw UserError({options.flag + " " + std::to_string(options.port) + " cannot be opened",
                   std::strerror(code),
                   code == EACCES ? "choose a port from 1024 on"
                                  : "choose another port, or end the process that has it"});
}

}  // namespace

struct HttpEndpoint::Server {
  httplib::Server http;
  int port = 0;
  std::atomic<bool> has_ended = false;
  std::thread thread;
};

HttpEndpoint::HttpEndpoint(const Options& options, std::function<std::string()> answer)
    : server_(std::make_unique<Server>()) {
  httplib::Server& http = server_->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(1); };
  http.set_keep_alive_timeout(1);
  http.set_socket_options(set_socket_options);
  http.Get(options.path, [answer = std::move(answer), type = options.content_type](
                             const httplib::Request&, httplib::Response& response) {
    response.set_content(answer(), type);
  });
  errno = 0;
  const int port = options.port;
  server_->port = port == 0 ? http.bind_to_any_port(options.host)
                            : (http.bind_to_port(options.host, port) ? port : -1);
  if (server_->port < 0) refuse(options);
  server_->thread = std::thread([server = server_.get()] {
    server->http.listen_after_bind();
    server->has_ended = true;
  });
}

HttpEndpoint::~HttpEndpoint() {
  while (!server_->http.is_running() && !server_->has_ended) std::this_thread::yield();
  server_->http.stop();
  server_->thread.join();
}

int HttpEndpoint::port() const { return server_->port; }

}  // namespace megatron
