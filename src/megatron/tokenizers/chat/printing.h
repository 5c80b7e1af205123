// The texts of values: Python's str() and repr(), and json.dumps().
#pragma once

#include "megatron/tokenizers/chat/value.h"

namespace megatron::chat {

/// Returns repr() of a float, such as "1.0", "1e-05" or "nan".
std::string real_text(double value);

/// Returns str(value), which is what a template prints.
std::string to_text(const Value& value, Meter& meter);
/// Returns repr(value).
std::string to_repr(const Value& value, Meter& meter);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  ///< one level's; nullopt: all on one line
  std::string between_items = ", ", after_key = ": ";
};
/// Returns json.dumps(value). Throws a TemplateError for values that JSON does not have.
std::string to_json(const Value& value, const JsonStyle& style, Meter& meter);

}  // namespace megatron::chat
