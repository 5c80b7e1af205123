// Errors in OpenAI's form, {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

#include "megatron/base/json_text.h"

namespace megatron {

/// Returns the body of an answer with an HTTP status of an error. An empty `code` is null.
JsonText error_json(int status, const std::string& message, const std::string& code = "");

}  // namespace megatron
