// Helpers to read components of tokenizer.json ({"type": "...", ...}).
#pragma once

#include <string>

#include "megatron/base/json_fwd.h"

namespace megatron::hugging_face {

/// Returns the field "type" of `component`. Throws a UserError with `where` when it is missing.
std::string component_type(const Json& component, const std::string& where);

/// Throws a UserError for an unsupported component type.
[[noreturn]] void unsupported_component(const std::string& type, const std::string& where);

/// Returns the array in field `key` of `object`. Throws a UserError with `where` when the field is
/// missing or not an array.
const Json& array_at(const Json& object, const std::string& key, const std::string& where);

/// Returns the boolean in field `key`, or `otherwise` when the field is missing or null.
bool bool_or(const Json& object, const std::string& key, bool otherwise, const std::string& where);

/// Returns the regular expression in field "pattern", which is {"Regex": "..."} or {"String":
/// "..."}.
std::string pattern_of(const Json& component, const std::string& where);

}  // namespace megatron::hugging_face
