// Every spelling of every field: what a flag or a key of a file means.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "megatron/config/field.h"

namespace megatron {

/// What a spelling means: a field, set as written or, for --no-x, turned off.
struct Spelling {
  const Field* field = nullptr;
  bool turns_off = false;
};

/// Looks spellings up; the fields must outlive the index.
class FieldIndex {
 public:
  explicit FieldIndex(const FieldSet& fields);
  const FieldSet& fields() const { return fields_; }
  /// The meaning of a kebab-case spelling without "--"; its field is null when unknown.
  Spelling find(const std::string& spelling) const;
  /// The known spelling nearest to this one, or "". Settings that have an effect come first; flags
  /// that are refused are left out.
  std::string nearest(const std::string& spelling) const;
  /// What to do about an unknown flag: the flag that was meant, also when other programs call it
  /// like that, or where to look.
  std::string suggestion(const std::string& spelling, std::string_view command) const;

 private:
  template <class Wanted>
  std::string nearest_of(const std::string& spelling, Wanted wanted) const;

  const FieldSet& fields_;
  std::unordered_map<std::string, Spelling> spellings_;
};

/// "true" and "false" exchanged, for a spelling that turns a field off. Throws FieldError.
std::string inverted(const std::string& value);

}  // namespace megatron
