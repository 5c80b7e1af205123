// Reads and checks the environment variables of launchers. Errors are UserErrors that name the
// variable.
#pragma once

#include "megatron/base/endpoint.h"
#include "megatron/config/launch_environment.h"

namespace megatron {

/// Typed access to environment variables.
class LaunchVariables {
 public:
  explicit LaunchVariables(GetEnv lookup) : lookup_(std::move(lookup)) {}

  /// Returns the value, or nullopt if it is unset or empty.
  std::optional<std::string> text(const std::string& name) const;
  bool has(const std::string& name) const { return text(name).has_value(); }
  /// Returns a whole number, or nullopt if it is unset or empty. Throws a UserError if the value is
  /// not a whole number of at least 0.
  std::optional<std::int64_t> number(const std::string& name) const;
  /// Returns the value of the first variable that is set, or nullopt.
  std::optional<std::int64_t> first_number(std::initializer_list<const char*> names) const;
  std::optional<std::string> first_text(std::initializer_list<const char*> names) const;
  /// Like number(), but throws a UserError if the variable is not set. `because` names the variable
  /// that makes it necessary.
  std::int64_t required_number(const std::string& name, const std::string& because) const;
  /// Returns whether the value is 1, true, True or TRUE.
  bool is_true(const std::string& name) const;

 private:
  GetEnv lookup_;
};

/// Reads where the first host is, with or without a port. Throws a UserError that names `source` if
/// the text is no endpoint or its port is below `least_port`.
Endpoint master_endpoint(const std::string& text, const std::string& source,
                         std::int64_t least_port = 1);

}  // namespace megatron
