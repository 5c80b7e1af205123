// Python's '%s' % value.
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// Returns format % value.
std::string format_percent(std::string_view format, const Value& value, Meter& meter);

}  // namespace megatron::chat
