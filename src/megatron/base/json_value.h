// A JSON value for class members, in headers that must not include nlohmann/json.hpp.
#pragma once

#include <memory>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Owns a Json or an OrderedJson, initially null, with value semantics. A moved-from object may
/// only be assigned to or destroyed. Unlike with Indirect<Json>, the class that holds it need not
/// define its special members in a source.
template <class T>
class BasicJsonValue {
 public:
  BasicJsonValue();
  BasicJsonValue(const T& value);
  BasicJsonValue(const BasicJsonValue& other);
  BasicJsonValue(BasicJsonValue&&) noexcept = default;
  BasicJsonValue& operator=(const BasicJsonValue& other);
  BasicJsonValue& operator=(BasicJsonValue&&) noexcept = default;

  const T& operator*() const { return *value_; }
  T& operator*() { return *value_; }
  const T* operator->() const { return value_.get(); }
  T* operator->() { return value_.get(); }

 private:
  std::shared_ptr<T> value_;  ///< not shared, but deletes a type that is incomplete here
};
using JsonValue = BasicJsonValue<Json>;
using OrderedJsonValue = BasicJsonValue<OrderedJson>;

}  // namespace megatron
