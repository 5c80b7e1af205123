#include "megatron/base/json_cursor.h"

#include <limits>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {

JsonCursor JsonCursor::operator[](const std::string& key) const {
  if (!value_->is_object())
    throw UserError({place() + ": expected a JSON object with field '" + key + "'",
                     std::string(value_->type_name()), ""});
  if (auto member = find(key)) return *std::move(member);
  throw UserError({place() + ": field '" + key + "' is missing", "", ""});
}

std::optional<JsonCursor> JsonCursor::find(const std::string& key) const {
  const auto found = value_->find(key);  // the end unless the value is an object
  if (found == value_->end()) return std::nullopt;
  return JsonCursor(*found, place(), key_.empty() ? ": " : ".", key);
}

const Json& JsonCursor::object() const {
  if (!value_->is_object()) refuse("an object");
  return *value_;
}

const Json& JsonCursor::array() const {
  if (!value_->is_array()) refuse("an array");
  return *value_;
}

std::vector<JsonCursor> JsonCursor::elements() const {
  std::vector<JsonCursor> all;
  for (const Json& element : array())
    all.push_back(JsonCursor(element, place(), "", '[' + std::to_string(all.size()) + ']'));
  return all;
}

std::int64_t JsonCursor::integer() const {
  if (!value_->is_number_integer()) refuse("an integer");
  if (value_->is_number_unsigned() &&
      value_->get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    refuse("a 64-bit integer");
  return value_->get<std::int64_t>();
}

double JsonCursor::number() const {
  if (!value_->is_number()) refuse("a number");
  return value_->get<double>();
}

bool JsonCursor::boolean() const {
  if (!value_->is_boolean()) refuse("true or false");
  return value_->get<bool>();
}

std::string JsonCursor::text() const {
  if (!value_->is_string()) refuse("a string");
  return value_->get<std::string>();
}

void JsonCursor::refuse(const std::string& expected) const {
  std::string got = value_->dump();
  if (got.size() > 80) got = got.substr(0, 77) + "...";
  throw UserError(name() + " must be " + expected + ", got " + got);
}

}  // namespace megatron
