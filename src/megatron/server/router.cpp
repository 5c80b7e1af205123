#include "megatron/server/router.h"

#include <algorithm>
#include <cctype>
#include <ctime>
#include <iostream>
#include <memory>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/wall_clock.h"
#include "megatron/base/words.h"
#include "megatron/config/problems.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/server/api/error_reply.h"

namespace megatron {
namespace {

/// Returns the id that the client gives, if it is short and plain, or a new one.
std::string request_id(const HttpRequest& request) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
  };
  const std::string* given = request.header("x-request-id");
  if (given && !given->empty() && given->size() <= 128 && std::ranges::all_of(*given, is_plain))
    return *given;
  return random_id("");
}

/// Compares in a time that depends on the length of `given` only.
bool is_same_secret(const std::string& secret, const std::string& given) {
  unsigned difference = secret.size() == given.size() ? 0 : 1;
  for (std::size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i]) ^
                  static_cast<unsigned char>(secret[i % std::max<std::size_t>(secret.size(), 1)]);
  return difference == 0;
}

std::string log_line(const HttpRequest& request, const std::string& id, const ReplyRecord& record) {
  std::string path = request.path.substr(0, 256);
  for (char& c : path)
    if (static_cast<unsigned char>(c) <= ' ' || c == '"' || c == 127) c = '?';
  std::string line = local_time(static_cast<std::time_t>(unix_seconds())) + " " + request.remote +
                     " \"" + request.method + " " + path + "\" " + std::to_string(record.status);
  if (record.has_usage) {
    const ReplyUsage& usage = record.usage;
    line += format(" prompt=%lld cached=%lld new=%lld", static_cast<long long>(usage.prompt_tokens),
                   static_cast<long long>(usage.cached_tokens),
                   static_cast<long long>(usage.new_tokens));
    if (usage.new_tokens > 0) line += format(" first_token_ms=%.1f", 1000 * usage.first_token_s);
  }
  line += format(" total_ms=%.1f id=", 1000 * record.seconds) + id;
  return line + (record.is_cut ? " cut\n" : "\n");
}

}  // namespace

void send_error(HttpReply& reply, int status, const std::string& message, const std::string& code,
                const HttpHeaders& headers) {
  const bool is_anthropic = reply.path().starts_with("/v1/messages");
  const ErrorReply error{status, message, code};
  const JsonText body = is_anthropic ? anthropic_error(error) : error_json(error);
  reply.send(status, body.dump(), "application/json", headers);
}

void HttpRouter::add(const std::string& method, const std::string& path, HttpHandler handler,
                     RouteAccess access) {
  const std::lock_guard lock(mutex_);
  routes_[path][method] = {std::move(handler), access};
}

std::vector<std::pair<std::string, std::string>> HttpRouter::routes() const {
  std::vector<std::pair<std::string, std::string>> all;
  const std::lock_guard lock(mutex_);
  for (const auto& [path, methods] : routes_)
    for (const auto& [method, unused] : methods) all.emplace_back(method, path);
  return all;
}

void HttpRouter::set_state(State state, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  state_ = state;
  reason_ = reason;
}

bool HttpRouter::refuse_unless_ready(HttpReply& reply) const {
  std::unique_lock lock(mutex_);
  const auto [state, reason] = std::pair(state_, reason_);
  lock.unlock();
  switch (state) {
    case State::ready:
      return false;
    case State::loading:
      send_error(reply, 503, "the model is being loaded", "loading", {{"Retry-After", "5"}});
      break;
    case State::draining:
      send_error(reply, 503, "the server is stopping", "draining", {{"Retry-After", "5"}});
      break;
    case State::failed:
      send_error(reply, 503, "the engine has failed: " + reason, "failed", {{"Retry-After", "5"}});
      break;
  }
  return true;
}

void HttpRouter::answer(const HttpRequest& request, HttpReply reply) {
  const std::string path = find(request.path), id = request_id(request);
  reply.add_header("X-Request-Id", id);
  allow_origin(request, reply);
  // The log needs all of the request but its body and headers.
  HttpRequest logged{.method = request.method, .path = request.path, .remote = request.remote};
  const auto has_place = std::make_shared<bool>(false);
  reply.on_done([this, logged = std::move(logged), path, id, has_place](const ReplyRecord& record) {
    if (*has_place) --num_open_;
    metrics_.add(path.empty() ? "other" : path, record);
    if (options_.logs_access) std::cerr << log_line(logged, id, record) << std::flush;
  });
  try {
    const std::optional<Route> route = choose(request, reply, path);
    if (!route) return;
    if (route->access == RouteAccess::generates) {
      std::int64_t open = num_open_;
      const std::int64_t most = max_open_;
      while (open < most && !num_open_.compare_exchange_weak(open, open + 1)) continue;
      *has_place = open < most;
      if (!*has_place)
        return send_error(reply, 429, "too many requests wait; try again later", "queue_full",
                          {{"Retry-After", "1"}});
    }
    route->handler(request, reply);
  } catch (const UserError& error) {
    send_error(reply, 400, error.parts().one_line());
  } catch (const std::exception& error) {
    std::cerr << "ERROR: request " + id + ": " + error.what() + "\n" << std::flush;
    send_error(reply, 500, error.what());
  }
}

std::string HttpRouter::find(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  if (routes_.contains(path)) return path;
  for (const auto& [pattern, methods] : routes_)
    if (pattern.ends_with("/*") && path.starts_with(pattern.substr(0, pattern.size() - 1)))
      return pattern;
  return "";
}

std::optional<HttpRouter::Route> HttpRouter::choose(const HttpRequest& request, HttpReply& reply,
                                                    const std::string& path) const {
  const auto refuse = [&](int status, const std::string& message, const std::string& code,
                          const HttpHeaders& headers = {}) {
    send_error(reply, status, message, code, headers);
    return std::nullopt;
  };
  if (request.is_too_large)
    return refuse(413, "the body of the request is too large", "request_too_large");
  std::map<std::string, Route> methods;
  std::vector<std::string> paths;
  {
    const std::lock_guard lock(mutex_);
    if (!path.empty())
      methods = routes_.at(path);
    else
      for (const auto& [known, unused] : routes_) paths.push_back(known);
  }
  if (methods.empty()) {
    if (refuse_unless_ready(reply)) return std::nullopt;  // it may be a route of the model
    const std::string near = nearest_name(request.path, paths);
    return refuse(404,
                  "there is no " + request.path +
                      (near.empty() ? std::string() : "; did you mean " + near + "?"),
                  "not_found");
  }
  const std::string allow = joined_text(methods, ", ", [](const auto& one) { return one.first; }) +
                            (methods.contains("GET") ? ", HEAD, OPTIONS" : ", OPTIONS");
  if (request.method == "OPTIONS") {
    const std::string* names = request.header("access-control-request-headers");
    reply.send(204, "", "",
               {{"Allow", allow},
                {"Access-Control-Allow-Methods", allow},
                {"Access-Control-Allow-Headers", names ? *names : "*"},
                {"Access-Control-Max-Age", "600"}});
    return std::nullopt;
  }
  const auto found = methods.find(request.method == "HEAD" ? "GET" : request.method);
  if (found == methods.end())
    return refuse(405, request.path + " takes " + allow + ", not " + request.method,
                  "method_not_allowed", {{"Allow", allow}});
  if (found->second.access == RouteAccess::open) return found->second;
  if (!has_key(request))
    return refuse(401, "give a valid key: Authorization: Bearer KEY", "invalid_api_key",
                  {{"WWW-Authenticate", "Bearer"}});
  if (refuse_unless_ready(reply)) return std::nullopt;
  return found->second;
}

bool HttpRouter::has_key(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return true;
  const std::string* bearer = request.header("authorization");
  const std::string* key = request.header("x-api-key");
  const bool is_bearer = bearer && lower_case(bearer->substr(0, 7)) == "bearer ";
  const std::string given = is_bearer ? bearer->substr(7) : key ? *key : "";
  bool is_known = false;
  for (const std::string& secret : options_.api_keys) is_known |= is_same_secret(secret, given);
  return is_known;
}

void HttpRouter::allow_origin(const HttpRequest& request, HttpReply& reply) const {
  const std::string* origin = request.header("origin");
  const auto& allowed = options_.allowed_origins;
  if (!origin ||
      (std::ranges::count(allowed, *origin) == 0 && std::ranges::count(allowed, "*") == 0))
    return;
  reply.add_header("Access-Control-Allow-Origin", *origin);
  reply.add_header("Access-Control-Expose-Headers", "X-Request-Id");
  reply.add_header("Vary", "Origin");
}

}  // namespace megatron
