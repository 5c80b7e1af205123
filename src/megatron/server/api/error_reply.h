// What the APIs share: the forms of errors, the check of the model's name, and ids.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"
#include "megatron/inference/completions/completion_request.h"

namespace megatron {

class HttpReply;
struct ServedModel;

/// A UserError with a status of its own, or a code.
struct RefusedRequest : UserError {
  RefusedRequest(int http_status, std::string name, const Parts& parts)
      : UserError(parts), status(http_status), code(std::move(name)) {}
  int status;
  std::string code;  ///< of ErrorReply
};

/// Returns the body of an error in Anthropic's form, {"type", "error": {"type", "message"}}.
JsonText anthropic_error(const ErrorReply& error);
/// Returns what is told of an error: status 400 for a UserError, or its own, and 500 for a failed
/// engine.
ErrorReply error_of(const std::exception_ptr& error);
/// Sends an error in OpenAI's form.
void reply_error(HttpReply& reply, const std::exception_ptr& error);
/// Throws a RefusedRequest with status 404 unless `name` is empty or one of the model's.
void check_model_name(const ServedModel& model, const std::string& name);
/// Returns `prefix` and 24 random hexadecimal digits.
std::string random_id(const std::string& prefix);
/// Returns whole seconds since 1970.
std::int64_t unix_time();

}  // namespace megatron
