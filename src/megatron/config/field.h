// One setting with its type erased. The parsers, the help, the documentation and the dumps work on
// this form of a FieldTable.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/member_key.h"

namespace megatron {

/// The syntax of one value of a field.
enum class ValueKind { boolean, integer, number, text };

/// The declaration of one setting of some object, with its type erased.
struct Field {
  /// The key in files, in snake_case. The flag is --kebab-case, the environment variable
  /// MEGATRON_UPPER_CASE.
  std::string name;
  std::string group;  ///< title of its group in the help, and the optional section in files
  std::string help;
  std::string value_name;  ///< placeholder of the value in the help; "": the default of its kind
  std::vector<std::string> choices;    ///< if not empty, the only values allowed
  std::string choices_fix;             ///< fix for a value that resembles none of the choices
  std::vector<std::string> aliases;    ///< further flag spellings, without "--"
  std::vector<std::string> off_flags;  ///< flags that set a boolean to false, without "--"
  std::string note;                    ///< printed once on stderr if the field is given
  ValueKind kind = ValueKind::text;
  bool is_list = false;        ///< takes values up to the next flag
  bool is_repeatable = false;  ///< each occurrence of the flag appends one value to the list
  bool is_optional = false;    ///< may be unset ("none")
  bool is_required = false;
  bool is_hidden = false;   ///< omitted from the help, the documentation and the dumps
  bool is_refused = false;  ///< known, but refused unless its value is neutral
  /// Takes its values from the words that belong to no flag, in order of declaration.
  bool is_positional = false;
  std::optional<double> minimum, maximum;
  bool minimum_is_excluded = false, maximum_is_excluded = false;
  std::vector<std::string> default_values;  ///< empty: unset
  MemberKey member;  ///< where the value is stored, if it is one member

  /// Sets the member of `object`. Throws FieldError if the values are invalid.
  std::function<void(void* object, std::span<const std::string> values)> set;
  /// Returns the member's values as text; empty if unset.
  std::function<std::vector<std::string>(const void* object)> get;

  std::string flag() const;              ///< "--kebab-case"
  std::string environment_name() const;  ///< "MEGATRON_UPPER_CASE"
  bool is_switch() const { return kind == ValueKind::boolean && !is_list; }
};

/// Thrown for an invalid value. `reason` follows the name of the setting in the message: "must be
/// at least 1, got 0".
struct FieldError {
  std::string reason;
  std::string fix = {};
};

/// All fields of one command or object, with their type erased.
struct FieldSet {
  std::string about;  ///< first paragraph of the help
  std::deque<Field> fields;
  const Field* find_name(std::string_view name) const;
};

/// Checks choices and bounds, then sets the field. Throws FieldError if a value is invalid.
void assign(const Field& field, void* object, std::span<const std::string> values);

/// Joins values with spaces. Returns "none" if there are none.
std::string join_values(std::span<const std::string> values);

/// Returns the placeholder of the value in the help: "N", "X", "TEXT", "{a,b}" or the declared
/// name.
std::string value_placeholder(const Field& field);

}  // namespace megatron
