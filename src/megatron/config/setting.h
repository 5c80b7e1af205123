// A setting of a run, named by its member: Setting(&TrainingConfig::bf16). A wrong name does not
// compile, and the flag is spelled as its table says.
#pragma once

#include <optional>
#include <string>

#include "megatron/config/member_key.h"

namespace megatron {

struct Field;
struct Settings;

/// One field of settings_table().
class Setting {
 public:
  /// Throws InternalError if no table declares the member.
  template <class T, class V>
  Setting(V T::*member) : Setting(member_key(member)) {}
  explicit Setting(const MemberKey& key);

  const Field& field() const { return *field_; }
  const std::string& name() const;  ///< snake_case
  std::string flag() const;         ///< "--kebab-case"
  bool is_on_by_default() const;
  /// Returns whether the value differs from the default.
  bool is_given(const Settings& settings) const;
  /// Returns the value as text, "none" if it is unset.
  std::string value(const Settings& settings) const;
  /// Returns the value as a number; nullopt if it is unset or no number.
  std::optional<double> number(const Settings& settings) const;

 private:
  const Field* field_;
};

}  // namespace megatron
