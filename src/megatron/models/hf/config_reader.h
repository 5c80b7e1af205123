// Typed access to a config.json. Absent and null are equivalent, and every error names the file and
// the field. Readers remember which fields were asked for.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "megatron/base/json.h"
#include "megatron/models/architecture.h"

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
  std::int64_t integer(const std::string& key, std::int64_t default_value) const {
    return has(key) ? object_[key].integer() : default_value;
  }
  double number(const std::string& key) const { return at(key).number(); }
  double number(const std::string& key, double default_value) const {
    return has(key) ? number(key) : default_value;
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
  /// Returns the object below `key`, or an empty one when it is absent.
  ConfigReader section(const std::string& key) const;

  /// Returns where the value of a field that has a default comes from, for the log.
  std::string origin(const std::string& key) const {
    return has(key) ? "config.json" : "the family's default";
  }
  /// Returns the fields that nobody asked for: "a, b"; "" when there are none.
  std::string unread() const;

  /// Throws UserError: the field's value is not supported. `fix` names the supported values.
  [[noreturn]] void unsupported(const std::string& key, const std::string& fix) const;

 private:
  JsonCursor at(const std::string& key) const {
    read_.insert(key);
    return object_[key];
  }

  JsonCursor object_;
  mutable std::set<std::string> read_;  ///< the fields that were asked for
};

}  // namespace megatron
