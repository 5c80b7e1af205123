#include "megatron/tokenizers/hugging_face/component.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

std::string component_type(const JsonCursor& component) { return component["type"].text(); }

void unsupported_component(const std::string& type, const std::string& where) {
  throw UserError(
      {where + ": type '" + type + "' is not supported", "", "the file may need a newer version"});
}

std::optional<JsonCursor> find_given(const JsonCursor& object, const std::string& key) {
  std::optional<JsonCursor> field = object.find(key);
  return field && !(*field)->is_null() ? field : std::nullopt;
}

bool bool_or(const JsonCursor& object, const std::string& key, bool otherwise) {
  const auto field = find_given(object, key);
  return field ? field->boolean() : otherwise;
}

std::string pattern_of(const JsonCursor& component) {
  const JsonCursor pattern = component["pattern"];
  if (const auto regex = pattern.find("Regex")) return regex->text();
  if (const auto literal = pattern.find("String")) return escape_regex(literal->text());
  throw UserError(
      {pattern.name() + " must be {\"Regex\": ...} or {\"String\": ...}", pattern->dump(), ""});
}

}  // namespace megatron::hugging_face
