// Reads JSON into values of templates.
#pragma once

#include <string>
#include <string_view>

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// Reads a JSON text as Python's json.loads() does: keys keep their order, and the last of two
/// equal keys wins. Throws a UserError that names `source` for text that is not valid JSON, is
/// nested too deep or has an integer beyond 64 bits.
Value read_json_value(std::string_view text, const std::string& source);

}  // namespace megatron::chat
