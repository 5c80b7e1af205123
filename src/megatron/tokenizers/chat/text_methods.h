// The methods of Python's str that published templates call, and their siblings.
#pragma once

#include <string_view>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

using TextMethod = Value (*)(const Value& self, Arguments arguments, Meter& meter);

/// Returns the method called `name`, or null.
TextMethod text_method(std::string_view name);

/// str.replace(), charged to the meter. `limit` < 0: all.
std::string replace_metered(std::string_view text, std::string_view old, std::string_view by,
                            std::int64_t limit, Meter& meter);

}  // namespace megatron::chat
