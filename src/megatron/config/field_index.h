// Maps every spelling of a flag or of a key in a file to its field.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/config/field.h"

namespace megatron {

/// The field that a spelling names. `turns_off` is true for spellings such as --no-x.
struct Spelling {
  const Field* field = nullptr;
  bool turns_off = false;
};

/// Looks up spellings. The fields must outlive the index.
class FieldIndex {
 public:
  explicit FieldIndex(const FieldSet& fields);
  const FieldSet& fields() const { return fields_; }
  /// Looks up a kebab-case spelling without "--". The field of the result is null if it is unknown.
  Spelling find(const std::string& spelling) const;
  /// Returns the known spelling nearest to this one, or "". Settings that have an effect come
  /// first. Refused flags are left out.
  std::string nearest(const std::string& spelling) const;
  /// Returns the fix for an unknown flag: the flag that was probably meant (including the names
  /// that other programs use), or where to look.
  std::string suggestion(const std::string& spelling, std::string_view command) const;

 private:
  template <class Wanted>
  std::string nearest_of(const std::string& spelling, Wanted wanted) const;

  const FieldSet& fields_;
  std::unordered_map<std::string, Spelling> spellings_;
};

/// Returns the negation of a boolean value, for a spelling that turns a field off. Throws
/// FieldError if `value` is not a boolean.
std::string inverted(const std::string& value);

}  // namespace megatron
