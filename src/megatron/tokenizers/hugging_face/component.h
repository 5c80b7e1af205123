// The typed parts of tokenizer.json ({"type": "...", ...}) and the pattern field that several of
// them share.
#pragma once

#include <string>

#include "megatron/base/json.h"
#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

/// The field "type" of `component`; a UserError naming `where` when absent.
std::string component_type(const Json& component, const std::string& where);

/// Throws the UserError for a component that we do not know.
[[noreturn]] void unsupported_component(const std::string& type, const std::string& where);

/// The field `key` of `object` as an array; a UserError naming `where` when absent or of another
/// type.
const Json& array_at(const Json& object, const std::string& key, const std::string& where);

/// The boolean `key`, or `otherwise` when absent or null.
bool bool_or(const Json& object, const std::string& key, bool otherwise, const std::string& where);

/// The field "pattern": {"Regex": "..."} or {"String": "..."}.
Regex pattern_of(const Json& component, const std::string& where);

}  // namespace megatron::hugging_face
