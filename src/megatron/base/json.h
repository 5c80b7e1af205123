// Parses and reads nlohmann::json with errors that name the file and the field. Include
// nlohmann/json.hpp only in .cpp files.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/json_fwd.h"

namespace megatron {

/// Returns what the error of a parser says: "not valid JSON", or that an escape is half of a
/// surrogate pair, which Python reads though it is no character.
const char* json_fault(const std::exception& error);

/// Parses `text`. Throws a UserError that names `source`, the line (if there are several) and the
/// column on a syntax error or if values are nested more than 200 deep.
Json parse_json(std::string_view text, const std::string& source);

/// Like parse_json(), but also throws a UserError if an object has the same key twice.
Json parse_json_unique_keys(std::string_view text, const std::string& source);

/// Like parse_json(), of what Python writes, where JSON has no word for a number: Infinity becomes
/// {"__float__": "Infinity"}, as transformers 5 spells it, and so do -Infinity and NaN.
Json parse_python_json(std::string_view text, const std::string& source);

/// Reads and parses a file. Throws like parse_json(), and if the file cannot be read.
Json read_json(const std::filesystem::path& path);

/// Returns the value as one line without spaces. Bytes that are not UTF-8 become U+FFFD.
std::string compact_json(const Json& json);

/// A value of a parsed text that knows where it stands. The accessors throw a UserError that names
/// the value when it is of another type.
class JsonCursor {
 public:
  /// Points to `value`, which must outlive it. `source` names the value: a file, or a part of one.
  JsonCursor(const Json& value, std::string source)
      : JsonCursor({std::shared_ptr<const Json>(), &value}, std::move(source), "", "") {}
  /// Owns `value` together with the cursors to its parts.
  JsonCursor(Json&& value, std::string source);

  const Json& operator*() const { return *value_; }
  const Json* operator->() const { return value_.get(); }

  /// Returns a member of an object. Throws if it is missing.
  JsonCursor operator[](const std::string& key) const;
  /// Returns nullopt when the value is not an object with a member `key`.
  std::optional<JsonCursor> find(const std::string& key) const;
  /// Likewise, also when the member is null.
  std::optional<JsonCursor> find_given(const std::string& key) const;
  /// Throws if the value is no object, or has a member that is not null and none of `keys`.
  void allow_only(std::initializer_list<std::string_view> keys) const;
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
  JsonCursor(std::shared_ptr<const Json> value, std::string holder, const char* separator,
             std::string key)
      : value_(std::move(value)),
        holder_(std::move(holder)),
        separator_(separator),
        key_(std::move(key)) {}

  /// Returns the value if it is of the right type.
  const Json& require(bool is_right, const char* expected) const;

  std::shared_ptr<const Json> value_;
  std::string holder_;     ///< the source, or the place of the object or array with the value
  const char* separator_;  ///< between holder_ and key_; "" except for a member
  std::string key_;        ///< of a member, "[3]" of an element, "" of the source
};

}  // namespace megatron
