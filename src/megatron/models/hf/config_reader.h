// Typed access to a config.json. Absent and null are equivalent, and every error names the file and
// the field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/json.h"

namespace megatron {

/// Reads the fields of one JSON object.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string source);

  std::string source() const { return object_.place(); }
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Returns whether the key is present, even with a null value.
  bool contains_key(const std::string& key) const;
  /// Returns null when the field is absent or null.
  const Json* find(const std::string& key) const;

  /// The typed accessors throw UserError when the field has another type, or is absent and has no
  /// default.
  std::int64_t integer(const std::string& key) const;
  std::int64_t integer(const std::string& key, std::int64_t default_value) const {
    return has(key) ? integer(key) : default_value;
  }
  double number(const std::string& key) const;
  double number(const std::string& key, double default_value) const {
    return has(key) ? number(key) : default_value;
  }
  bool boolean(const std::string& key, bool default_value) const;
  std::string text(const std::string& key, const std::string& default_value) const;
  std::optional<double> optional_number(const std::string& key) const {
    return has(key) ? std::optional(number(key)) : std::nullopt;
  }
  /// Returns the object below `key`, or an empty one when it is absent.
  ConfigReader section(const std::string& key) const;

  /// Throws UserError: the field's value is not supported. `fix` names the supported values.
  [[noreturn]] void unsupported(const std::string& key, const std::string& fix) const;

 private:
  JsonCursor object_;
};

}  // namespace megatron
