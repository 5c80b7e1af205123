// One setting without its type: what the parsers, the help, the documentation and the dumps see of
// a FieldTable.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// How one value of a field is written.
enum class ValueKind { boolean, integer, number, text };

/// The declaration of one setting of some object, with its type erased.
struct Field {
  std::string name;   ///< snake_case: the key in files; the flag is --kebab-case, the environment
                      ///< MEGATRON_UPPER_CASE
  std::string group;  ///< the title it stands under in the help, and the optional section in files
  std::string help;
  std::string value_name;  ///< what stands for the value in the help; "" for the kind's own
  std::vector<std::string> choices;    ///< the only values allowed, when not empty
  std::string choices_fix;             ///< what to do about another value that is near none of them
  std::vector<std::string> aliases;    ///< further flag spellings, without "--"
  std::vector<std::string> off_flags;  ///< flags that set a boolean to false, without "--"
  std::string note;                    ///< said once on stderr when the field is given
  ValueKind kind = ValueKind::text;
  bool is_list = false;        ///< takes values up to the next flag
  bool is_repeatable = false;  ///< a list that grows by one value with each occurrence of the flag
  bool is_optional = false;    ///< may be unset ("none")
  bool is_required = false;
  bool is_hidden = false;   ///< not in the help, the documentation and the dumps
  bool is_refused = false;  ///< known, but refused unless its value is neutral
  bool is_positional =
      false;  ///< taken from the words that belong to no flag, in order of declaration
  std::optional<double> minimum, maximum;
  bool minimum_is_excluded = false, maximum_is_excluded = false;
  std::vector<std::string> default_values;  ///< empty: unset

  /// Sets the member of `object`; throws FieldError when the values do not fit.
  std::function<void(void* object, std::span<const std::string> values)> set;
  /// The member's values as text; empty when unset.
  std::function<std::vector<std::string>(const void* object)> get;

  std::string flag() const;              ///< "--kebab-case"
  std::string environment_name() const;  ///< "MEGATRON_UPPER_CASE"
  bool is_switch() const { return kind == ValueKind::boolean && !is_list; }
};

/// Why a value does not fit, as a sentence without a subject: "must be at least 1, got 0".
struct FieldError {
  std::string reason;
  std::string fix = {};
};

/// All fields of one command or object, with their type erased.
struct FieldSet {
  std::string about;  ///< one paragraph for the head of the help
  std::deque<Field> fields;
  const Field* find_name(std::string_view name) const;
};

/// Checks choices and bounds, then sets the field. Throws FieldError.
void assign(const Field& field, void* object, std::span<const std::string> values);

/// Values joined by spaces; "none" when unset.
std::string join_values(std::span<const std::string> values);

/// What stands for the value in the help: "N", "X", "TEXT", "{a,b}", or the declared name.
std::string value_placeholder(const Field& field);

}  // namespace megatron
