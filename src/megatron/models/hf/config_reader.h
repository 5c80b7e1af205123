// Reads config.json field by field, and knows which fields nobody asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "megatron/base/json.h"
#include "megatron/models/architecture.h"

namespace megatron {

/// Reads the fields of one JSON object. Absent and null are equivalent, and every error names the
/// file and the field.
class ConfigReader {
 public:
  ConfigReader(const Json& object, std::string source, const ConfigReader* outer = nullptr);

  std::string source() const { return object_.place(); }
  /// Returns null when the field is absent or null.
  const Json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Returns whether the field is there and null.
  bool is_null(const std::string& key) const;

  /// The typed accessors throw UserError when the field has another type, or is absent and has no
  /// default.
  std::int64_t integer(const std::string& key, std::int64_t default_value) const {
    return has(key) ? object_[key].integer() : default_value;
  }
  double number(const std::string& key, std::optional<double> default_value = {}) const {
    return has(key) || !default_value ? object_[key].number() : *default_value;
  }
  bool boolean(const std::string& key, bool default_value) const {
    return has(key) ? object_[key].boolean() : default_value;
  }
  std::string text(const std::string& key, const std::string& default_value) const {
    return has(key) ? object_[key].text() : default_value;
  }
  /// Returns a size, which must be between 1 and `most`. A default of 0 means none.
  std::int64_t size(const std::string& key, std::int64_t most = kWidest,
                    std::int64_t default_value = 0) const;
  /// Returns the object below `key`, or an empty one when it is absent. This one must outlive it.
  ConfigReader section(const std::string& key) const;
  /// Returns this object if it has the field, else the object around it.
  const ConfigReader& with(const std::string& key) const { return has(key) ? *this : *outer_; }
  const ConfigReader& outer() const { return *outer_; }
  /// Returns the fields that nobody asked for: "a, b"; "" when there are none.
  std::string unread() const;

  /// Throws UserError: the field's value is not supported. `fix` names the supported values.
  [[noreturn]] void unsupported(const std::string& key, const std::string& fix) const;

 private:
  JsonCursor object_;
  const ConfigReader* outer_;           ///< null: config.json itself
  mutable std::set<std::string> read_;  ///< the fields that were asked for
};

}  // namespace megatron
