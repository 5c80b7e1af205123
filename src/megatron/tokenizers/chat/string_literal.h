// The escapes of string literals in templates.
#pragma once

#include <string>
#include <string_view>

namespace megatron::chat {

/// Returns the text of a string literal: \n, \x41, \u00e9 and the other escapes of Python are
/// replaced, and unknown ones stay. Throws a TemplateError with `line` for a broken one.
std::string unescape_string(std::string_view literal, int line);

}  // namespace megatron::chat
