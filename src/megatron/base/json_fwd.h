// The names of JSON values, for headers that only declare functions on them.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace megatron {

using Json = nlohmann::json;
/// JSON that keeps the order of keys. To print a value, use JsonText (json_text.h).
using OrderedJson = nlohmann::ordered_json;
class JsonCursor;

}  // namespace megatron
