#include "megatron/server/api/error_reply.h"

#include <algorithm>
#include <random>

#include "megatron/base/format.h"
#include "megatron/base/wall_clock.h"
#include "megatron/server/api/served_model.h"
#include "megatron/server/http/http_server.h"

namespace megatron {

JsonText anthropic_error(const ErrorReply& error) {
  const int status = error.status;
  const char* type = status == 401   ? "authentication_error"
                     : status == 404 ? "not_found_error"
                     : status == 413 ? "request_too_large"
                     : status == 429 ? "rate_limit_error"
                     : status == 503 ? "overloaded_error"
                     : status >= 500 ? "api_error"
                                     : "invalid_request_error";
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
}

ErrorReply error_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const UserError& mistake) {
    ErrorReply reply = error_reply(mistake);
    if (const auto* refused = dynamic_cast<const RefusedRequest*>(&mistake))
      reply.status = refused->status, reply.code = refused->code;
    return reply;
  } catch (const std::exception& failure) {
    return {500, failure.what()};
  } catch (...) {
    return {500, "the engine has failed"};
  }
}

void reply_error(HttpReply& reply, const std::exception_ptr& error) {
  const ErrorReply told = error_of(error);
  reply.send(told.status, error_json(told).dump());
}

void check_model_name(const ServedModel& model, const std::string& name) {
  if (name.empty() || name == model.name || std::ranges::count(model.aliases, name) > 0) return;
  throw RefusedRequest(
      404, "model_not_found",
      {"field 'model'", "there is no model '" + name + "'", "this server has " + model.name});
}

std::string random_id(const std::string& prefix) {
  thread_local std::random_device device;
  std::string id = prefix;
  for (int i = 0; i < 3; ++i) id += format("%08x", device());
  return id;
}

std::int64_t unix_time() { return static_cast<std::int64_t>(unix_seconds()); }

}  // namespace megatron
