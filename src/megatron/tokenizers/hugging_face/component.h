// Helpers to read components of tokenizer.json ({"type": "...", ...}).
#pragma once

#include <optional>
#include <string>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// Returns the field "type" of `component`.
std::string component_type(const JsonCursor& component);

/// Throws a UserError for an unsupported component type.
[[noreturn]] void unsupported_component(const std::string& type, const std::string& where);

/// Returns the field `key`, or nullopt when it is missing or null.
std::optional<JsonCursor> find_given(const JsonCursor& object, const std::string& key);

/// Returns the boolean in field `key`, or `otherwise` when the field is missing or null.
bool bool_or(const JsonCursor& object, const std::string& key, bool otherwise);

/// Returns the regular expression in field "pattern", which is {"Regex": "..."} or {"String":
/// "..."}.
std::string pattern_of(const JsonCursor& component);

}  // namespace megatron::hugging_face
