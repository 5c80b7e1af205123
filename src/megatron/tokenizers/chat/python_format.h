// Python's two ways to format text: '%s' % value and '{}'.format(value).
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// Returns format % value.
std::string format_percent(std::string_view format, const Value& value, Meter& meter);

/// Returns format.format(*positional, **keywords). Fields may name attributes and items.
std::string format_braces(std::string_view format, const Arguments& arguments, Meter& meter);

}  // namespace megatron::chat
