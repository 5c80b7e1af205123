#include "megatron/base/json_value.h"

#include <nlohmann/json.hpp>

namespace megatron {

void JsonValue::Delete::operator()(Json* value) const { delete value; }

JsonValue::JsonValue() : value_(new Json()) {}
JsonValue::JsonValue(const Json& value) : value_(new Json(value)) {}
JsonValue::JsonValue(const JsonValue& other) : value_(new Json(*other)) {}
JsonValue& JsonValue::operator=(const JsonValue& other) {
  if (this != &other) value_.reset(new Json(*other));
  return *this;
}
JsonValue::~JsonValue() = default;

}  // namespace megatron
