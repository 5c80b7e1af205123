// Environment variables as the readers of launch environments want them: present, numeric, in
// range, or a UserError that names them.
#pragma once

#include "megatron/config/launch_environment.h"

namespace megatron {

class LaunchVariables {
 public:
  explicit LaunchVariables(GetEnv lookup) : lookup_(std::move(lookup)) {}

  /// Nothing when unset or empty.
  std::optional<std::string> text(const std::string& name) const;
  bool has(const std::string& name) const { return text(name).has_value(); }
  /// A whole number of at least 0. UserError when it is anything else.
  std::optional<std::int64_t> number(const std::string& name) const;
  /// The first of the names that is set.
  std::optional<std::int64_t> first_number(std::initializer_list<const char*> names) const;
  std::optional<std::string> first_text(std::initializer_list<const char*> names) const;
  /// UserError naming `because` when it is not set.
  std::int64_t required_number(const std::string& name, const std::string& because) const;
  /// 1 or True in any case.
  bool is_true(const std::string& name) const;

 private:
  GetEnv lookup_;
};

}  // namespace megatron
