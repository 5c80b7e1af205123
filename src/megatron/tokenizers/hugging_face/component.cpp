#include "megatron/tokenizers/hugging_face/component.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/tokenizers/regex.h"

namespace megatron::hugging_face {

std::string component_type(const Json& component, const std::string& where) {
  return json_string(component, "type", where);
}

void unsupported_component(const std::string& type, const std::string& where) {
  throw UserError(
      {where + ": type '" + type + "' is not supported", "", "the file may need a newer version"});
}

const Json& array_at(const Json& object, const std::string& key, const std::string& where) {
  const Json& value = json_at(object, key, where);
  if (!value.is_array())
    throw UserError(
        {where + ": field '" + key + "' must be an array", std::string(value.type_name()), ""});
  return value;
}

bool bool_or(const Json& object, const std::string& key, bool otherwise, const std::string& where) {
  if (!object.is_object() || !object.contains(key) || object.at(key).is_null()) return otherwise;
  return json_bool(object, key, where);
}

std::string pattern_of(const Json& component, const std::string& where) {
  const Json& pattern = json_at(component, "pattern", where);
  const std::string source = where + ".pattern";
  if (pattern.is_object() && pattern.contains("Regex"))
    return json_string(pattern, "Regex", source);
  if (pattern.is_object() && pattern.contains("String"))
    return escape_regex(json_string(pattern, "String", source));
  throw UserError({where + ": field 'pattern' must be {\"Regex\": ...} or {\"String\": ...}",
                   pattern.dump(), ""});
}

}  // namespace megatron::hugging_face
