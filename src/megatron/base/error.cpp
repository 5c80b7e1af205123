#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string describe(const UserError::Parts& parts) {
  std::string text = parts.problem();
  if (!parts.fix.empty()) text.append("\n  fix: ").append(parts.fix);
  return text;
}

}  // namespace

std::string UserError::Parts::problem() const { return got.empty() ? what : what + ": " + got; }

UserError::UserError(Parts parts) : std::runtime_error(describe(parts)), parts_(std::move(parts)) {}

void detail::check_failed(const char* expression, const char* file, int line,
                          const std::string& message) {
  throw InternalError(concatenate("internal error: ", message.empty() ? expression : message, " [",
                                  expression, " at ", file, ":", line, "]"));
}

}  // namespace megatron
