#include "megatron/base/json_value.h"

#include <nlohmann/json.hpp>

namespace megatron {

JsonValue::JsonValue() : value_(std::make_shared<Json>()) {}
JsonValue::JsonValue(const Json& value) : value_(std::make_shared<Json>(value)) {}
JsonValue::JsonValue(const JsonValue& other) : JsonValue(*other) {}
JsonValue& JsonValue::operator=(const JsonValue& other) {
  if (this != &other) value_ = std::make_shared<Json>(*other);
  return *this;
}

}  // namespace megatron
