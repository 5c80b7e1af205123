// A JSON value that knows where it stands, so that errors name the file and the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Points to a value of a parsed text, which must outlive it. The accessors throw a UserError that
/// names the value when it is of another type.
class JsonCursor {
 public:
  /// `source` names the value: a file, or a part of one.
  JsonCursor(const Json& value, std::string source) : value_(&value), holder_(std::move(source)) {}
  JsonCursor(const Json&& value, std::string source) = delete;

  const Json& operator*() const { return *value_; }
  const Json* operator->() const { return value_; }

  /// Returns a member of an object. Throws if it is missing.
  JsonCursor operator[](const std::string& key) const;
  /// Returns nullopt when the value is not an object with a member `key`.
  std::optional<JsonCursor> find(const std::string& key) const;
  /// Return the value, which must be of that type.
  const Json& object() const;
  const Json& array() const;
  /// Returns the elements of an array.
  std::vector<JsonCursor> elements() const;

  std::int64_t integer() const;  ///< exact: 1.5 and values beyond 64 bits are errors
  double number() const;
  bool boolean() const;
  std::string text() const;

  /// Returns how errors name the value: "a.json: optimizer: field 'lr'".
  std::string name() const {
    return *separator_ == '\0' ? place() : holder_ + ": field '" + key_ + "'";
  }
  /// Returns where the parts of the value stand: "a.json: optimizer.lr".
  std::string place() const { return holder_ + separator_ + key_; }

 private:
  JsonCursor(const Json& value, std::string holder, const char* separator, std::string key)
      : value_(&value), holder_(std::move(holder)), separator_(separator), key_(std::move(key)) {}

  [[noreturn]] void refuse(const std::string& expected) const;

  const Json* value_;
  std::string holder_;          ///< the source, or the place of the object or array with the value
  const char* separator_ = "";  ///< between holder_ and key_; "" except for a member
  std::string key_ = {};        ///< of a member, "[3]" of an element, "" of the source
};

}  // namespace megatron
