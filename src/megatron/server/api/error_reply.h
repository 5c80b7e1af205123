// What the APIs share: the forms of errors, the check of the model's name, and ids.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/json_text.h"

namespace megatron {

class HttpReply;
struct ServedModel;

/// What the message begins with that refuses a prompt which is too long, with a code of its own.
inline constexpr const char* kContextExceeded = "the model has a context of ";

/// A UserError whose status is another than 400.
struct RefusedRequest : UserError {
  RefusedRequest(int http_status, const Parts& parts) : UserError(parts), status(http_status) {}
  int status;
};

/// Returns the body of an error; status 404 means that there is no such model, and 429 that too
/// many requests wait.
JsonText openai_error(int status, const std::string& message);
/// Returns the body of an error in Anthropic's form, {"type", "error": {"type", "message"}}.
JsonText anthropic_error(int status, const std::string& message);
/// Returns the status and the message of an error: 400 for a UserError, or its own, and 500 for a
/// failed engine.
std::pair<int, std::string> error_of(const std::exception_ptr& error);
/// Sends an error in OpenAI's form.
void reply_error(HttpReply& reply, const std::exception_ptr& error);
/// Throws a RefusedRequest with status 404 unless `name` is empty or one of the model's.
void check_model_name(const ServedModel& model, const std::string& name);
/// Returns `prefix` and 24 random hexadecimal digits.
std::string random_id(const std::string& prefix);
/// Returns whole seconds since 1970.
std::int64_t unix_time();

}  // namespace megatron
