// Finds the handler of a request, and answers what no handler should see: unknown paths and
// methods, missing keys, bodies that are too large, requests beyond the queue's limit, and those
// that come before the model is loaded or after the server was told to stop. Logs and counts every
// request.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/server/http/http_server.h"
#include "megatron/server/server_metrics.h"

namespace megatron {

/// Who may call a route, and when.
enum class RouteAccess : std::uint8_t {
  open,      ///< anybody, always
  keyed,     ///< with a key, while the model serves
  generates  ///< likewise, and while the queue has room
};

struct RouterOptions {
  std::vector<std::string> api_keys = {};         ///< none: no key is asked
  std::vector<std::string> allowed_origins = {};  ///< of pages that may call; "*": all
  bool logs_access = true;                        ///< a line on stderr for each request
};

/// Thread-safe.
class HttpRouter {
 public:
  enum class State : std::uint8_t { loading, ready, draining, failed };

  explicit HttpRouter(const RouterOptions& options) : options_(options) {}

  /// Adds a route. A path that ends in "/*" stands for all with that beginning. Routes may be added
  /// while the server runs.
  void add(const std::string& method, const std::string& path, HttpHandler handler,
           RouteAccess access = RouteAccess::generates);
  /// `reason` is for those who ask: what has failed.
  void set_state(State state, const std::string& reason = "");
  /// Requests that generate beyond this number get status 429.
  void set_max_open(std::int64_t count) { max_open_ = count; }
  /// Answers with status 503 unless the model serves. Returns whether it did.
  bool refuse_unless_ready(HttpReply& reply) const;
  std::int64_t num_open() const { return num_open_; }
  /// Returns the methods of all paths.
  std::vector<std::pair<std::string, std::string>> routes() const;
  const ServerMetrics& metrics() const { return metrics_; }

  /// Answers a request: the handler of HttpServer.
  void answer(const HttpRequest& request, HttpReply reply);

 private:
  struct Route {
    HttpHandler handler;
    RouteAccess access = RouteAccess::open;
  };

  /// Returns the path in the table, or "".
  std::string find(const std::string& path) const;
  /// Returns the route to call, or nothing if the request is answered.
  std::optional<Route> choose(const HttpRequest& request, HttpReply& reply,
                              const std::string& path) const;
  bool has_key(const HttpRequest& request) const;
  void allow_origin(const HttpRequest& request, HttpReply& reply) const;

  const RouterOptions options_;
  std::atomic<std::int64_t> num_open_ = 0, max_open_ = 1;
  ServerMetrics metrics_;
  mutable std::mutex mutex_;                                    ///< guards what follows
  std::map<std::string, std::map<std::string, Route>> routes_;  ///< by path and method
  State state_ = State::loading;
  std::string reason_;
};

/// Sends an error in the form of the API that the request is for: Anthropic's, or OpenAI's.
void send_error(HttpReply& reply, int status, const std::string& message,
                const std::string& code = "", const HttpHeaders& headers = {});

}  // namespace megatron
