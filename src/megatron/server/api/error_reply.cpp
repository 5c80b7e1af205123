#include "megatron/server/api/error_reply.h"

#include <algorithm>
#include <random>

#include "megatron/base/format.h"
#include "megatron/base/wall_clock.h"
#include "megatron/inference/completions/completion_request.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

JsonText openai_error(int status, const std::string& message) {
  return error_json(status, message,
                    status == 404                           ? "model_not_found"
                    : status == 429                         ? "queue_full"
                    : message.starts_with(kContextExceeded) ? "context_length_exceeded"
                                                            : "");
}

JsonText anthropic_error(int status, const std::string& message) {
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status >= 500 ? "api_error"
                                     : "invalid_request_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", message}}}};
}

std::pair<int, std::string> error_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& mistake) {
    const auto* refused = dynamic_cast<const RefusedRequest*>(&mistake);
    return {refused ? refused->status : 400, with_members(mistake).parts().one_line()};
  } catch (const std::exception& failure) {
    return {500, failure.what()};
  } catch (...) {
    return {500, "the engine has failed"};
  }
}

void reply_error(HttpReply& reply, const std::exception_ptr& error) {
  const auto [status, message] = error_of(error);
  reply.send(status, openai_error(status, message).dump());
}

void check_model_name(const ServedModel& model, const std::string& name) {
  if (name.empty() || name == model.name || std::ranges::count(model.aliases, name) > 0) return;
  throw RefusedRequest(404,
                       {"there is no model '" + name + "'", "", "this server has " + model.name});
}

std::string random_id(const std::string& prefix) {
  thread_local std::random_device device;
  std::string id = prefix;
  for (int i = 0; i < 3; ++i) id += format("%08x", device());
  return id;
}

std::int64_t unix_time() { return static_cast<std::int64_t>(unix_seconds()); }

}  // namespace megatron
