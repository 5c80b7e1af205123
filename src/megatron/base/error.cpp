#include "megatron/base/error.h"

#include <string_view>

namespace megatron {
namespace {

/// Returns `text` with control characters written as escapes: names in files may hold them, and a
/// message must stay on its line and leave the terminal alone. A newline before two spaces, which
/// begins an entry of a list of problems, is kept.
std::string escape_control_characters(std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string escaped;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte >= 0x20 && byte != 0x7f) || text.substr(i).starts_with("\n  ")) {
      escaped += text[i];
    } else if (const std::size_t known = std::string_view("\n\r\t").find(text[i]);
               known != std::string_view::npos) {
      escaped += '\\';
      escaped += "nrt"[known];
    } else {
      escaped += "\\x";
      escaped += kHex[byte >> 4];
      escaped += kHex[byte & 15];
    }
  }
  return escaped;
}

UserError::Parts escape_control_characters(const UserError::Parts& parts) {
  return {escape_control_characters(parts.what), escape_control_characters(parts.got),
          escape_control_characters(parts.fix)};
}

std::string describe(const UserError::Parts& parts) {
  std::string text = parts.problem();
  if (!parts.fix.empty()) text.append("\n  fix: ").append(parts.fix);
  return text;
}

}  // namespace

std::string UserError::Parts::problem() const { return got.empty() ? what : what + ": " + got; }
std::string UserError::Parts::one_line() const {
  return problem() + (fix.empty() ? "" : "; " + fix);
}

UserError::UserError(Parts parts)
    : std::runtime_error(describe(escape_control_characters(parts))),
      parts_(escape_control_characters(parts)) {}

void detail::check_failed(const char* expression, const char* file, int line,
                          const std::string& message) {
  throw InternalError(concatenate("internal error: ", message.empty() ? expression : message, " [",
                                  expression, " at ", file, ":", line, "]"));
}

}  // namespace megatron
