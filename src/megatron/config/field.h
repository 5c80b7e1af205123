// One setting with its type erased. The parsers, the help, the documentation and the dumps work on
// this form of a FieldTable.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/member_key.h"

namespace megatron {

struct Settings;

/// The syntax of one value of a field.
enum class ValueKind { boolean, integer, number, text };

/// What it means that a run resumes with another value of a setting than the checkpoint's.
struct ResumeMeaning {
  enum class Kind {
    plain,     ///< the run continues the saved one
    breaking,  ///< the run does not continue the saved one
    schedule,  ///< the setting defines a schedule, whose state the checkpoint stores
    none,      ///< nothing: the difference is not shown
  } kind = Kind::plain;
  std::string_view consequence = {};  ///< what the user is told; empty: only that the values differ
  bool phase_may_change = false;      ///< a new phase of the data may begin with another value
};

/// The part of a setting in the architecture, which checkpoints store and compare.
enum class ArchitectureRole {
  none,
  forward,   ///< decides shapes or the forward function: flags must agree with a checkpoint
  training,  ///< concerns only training or the numeric precision: flags may change it
};

/// A note that is printed once on stderr if a field is given and the settings satisfy a condition.
struct ConditionalNote {
  bool (*holds)(const Settings& settings);
  std::string_view text;
};

/// The declaration of one setting of some object, with its type erased.
struct Field {
  /// The key in files, in snake_case. The flag is --kebab-case, the environment variable
  /// MEGATRON_UPPER_CASE.
  std::string name;
  std::string group;  ///< title of its group in the help, and the optional section in files
  std::string help;
  std::string value_name;  ///< placeholder of the value in the help; "": the default of its kind
  std::vector<std::string> choices;      ///< if not empty, the only values allowed
  std::string choices_fix;               ///< fix for a value that resembles none of the choices
  std::vector<std::string> aliases;      ///< further flag spellings, without "--"
  std::vector<std::string> off_flags;    ///< flags that set a boolean to false, without "--"
  std::vector<std::string> older_names;  ///< aliases with "--" that are noted when they are given
  std::string note;                      ///< printed once on stderr if the field is given
  std::vector<ConditionalNote> conditional_notes;
  std::string_view read_with;  ///< another field: given other values, this one has no effect
  std::vector<std::string_view> read_with_values;
  ValueKind kind = ValueKind::text;
  bool is_list = false;        ///< takes values up to the next flag
  bool is_repeatable = false;  ///< each occurrence of the flag appends one value to the list
  bool is_optional = false;    ///< may be unset ("none")
  bool is_required = false;
  bool is_hidden = false;      ///< omitted from the help, the documentation and the dumps
  bool is_refused = false;     ///< known, but refused unless its value is neutral
  bool decides_flags = false;  ///< a wrong value is reported alone: other flags depend on it
  /// Takes its values from the words that belong to no flag, in order of declaration.
  bool is_positional = false;
  std::optional<double> minimum, maximum;
  bool minimum_is_excluded = false, maximum_is_excluded = false;
  std::vector<std::string> default_values;  ///< empty: unset
  MemberKey member;                         ///< where the value is stored, if it is one member
  ResumeMeaning on_resume;
  ArchitectureRole architecture = ArchitectureRole::none;
  bool older_checkpoints_lack_it = false;  ///< a member of the architecture that came later
  /// What `megatron check` says when it gives the field its default; nullopt: the value stays.
  std::optional<std::string_view> left_out_of_check;
  std::string none_text;  ///< the value that "none" stands for, which the architecture stores

  /// Sets the member of `object`. Throws FieldError if the values are invalid.
  std::function<void(void* object, std::span<const std::string> values)> set;
  /// Returns the member's values as text; empty if unset.
  std::function<std::vector<std::string>(const void* object)> get;

  std::string flag() const;              ///< "--kebab-case"
  std::string environment_name() const;  ///< "MEGATRON_UPPER_CASE"
  bool is_switch() const { return kind == ValueKind::boolean && !is_list; }
  /// Returns whether the field has an effect if `read_with` has this value.
  bool is_read_with(std::string_view value) const {
    return read_with_values.empty() || std::ranges::count(read_with_values, value) > 0;
  }
  /// Returns whether this is a switch that holds its default, as if it were not given.
  bool is_switch_at_default(const void* object) const {
    return is_switch() && !default_values.empty() && get(object) == default_values;
  }
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

/// Sets the field to values that Field::get() returned.
void copy_values(const Field& field, std::vector<std::string> values, void* object);

/// Joins values with spaces. Returns "none" if there are none.
std::string join_values(std::span<const std::string> values);

/// Returns the placeholder of the value in the help: "N", "X", "TEXT", "{a,b}" or the declared
/// name.
std::string value_placeholder(const Field& field);

}  // namespace megatron
