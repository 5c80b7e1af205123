// A JSON value for class members, in headers that must not include nlohmann/json.hpp.
#pragma once

#include <memory>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Owns a Json, initially null, with value semantics. A moved-from object may only be assigned to
/// or destroyed. Unlike with Indirect<Json>, the class that holds it need not define its special
/// members in a source.
class JsonValue {
 public:
  JsonValue();
  JsonValue(const Json& value);
  JsonValue(const JsonValue& other);
  JsonValue(JsonValue&&) noexcept = default;
  JsonValue& operator=(const JsonValue& other);
  JsonValue& operator=(JsonValue&&) noexcept = default;

  const Json& operator*() const { return *value_; }
  Json& operator*() { return *value_; }
  const Json* operator->() const { return value_.get(); }
  Json* operator->() { return value_.get(); }

 private:
  std::shared_ptr<Json> value_;  ///< not shared, but deletes a type that is incomplete here
};

}  // namespace megatron
