#include "megatron/inference/completions/openai_error.h"

namespace megatron {

JsonText error_json(int status, const std::string& message, const std::string& code) {
  const char* type = status >= 500   ? "server_error"
                     : status == 429 ? "rate_limit_error"
                     : status == 401 ? "authentication_error"
                                     : "invalid_request_error";
  return {{"error",
           {{"message", message},
            {"type", type},
            {"param", nullptr},
            {"code", code.empty() ? JsonText(nullptr) : JsonText(code)}}}};
}

}  // namespace megatron
