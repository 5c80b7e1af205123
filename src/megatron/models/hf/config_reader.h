// Typed access to a config.json: absent and null are the same there, and every error names file and
// field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/base/json_value.h"

namespace megatron {

class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string source);

  const std::string& source() const { return source_; }
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Whether the key is written at all, null included.
  bool contains_key(const std::string& key) const;
  /// Null when absent or null.
  const Json* find(const std::string& key) const;

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
  /// The object below `key`; an empty one when absent.
  ConfigReader section(const std::string& key) const;

  /// UserError: the field's value is not supported; `fix` says what is.
  [[noreturn]] void unsupported(const std::string& key, const std::string& fix) const;

 private:
  JsonValue object_;
  std::string source_;
};

}  // namespace megatron
