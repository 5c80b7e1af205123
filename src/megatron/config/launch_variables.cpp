#include "megatron/config/launch_variables.h"

#include <charconv>
#include <cstdlib>

#include "megatron/base/error.h"

namespace megatron {

GetEnv process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    if (!value) return std::nullopt;
    return value;
  };
}

std::optional<std::string> LaunchVariables::text(const std::string& name) const {
  std::optional<std::string> value = lookup_(name);
  if (value && value->empty()) value.reset();
  return value;
}

std::optional<std::int64_t> LaunchVariables::number(const std::string& name) const {
  const auto value = text(name);
  if (!value) return std::nullopt;
  std::int64_t number = 0;
  const char* end = value->data() + value->size();
  const auto [stop, error] = std::from_chars(value->data(), end, number);
  if (error != std::errc() || stop != end || number < 0) {
    throw UserError({"environment variable " + name +
                         ": must be a whole number of at least 0, got '" + *value + "'",
                     "", "correct it, or unset it for a run of one process"});
  }
  return number;
}

std::optional<std::int64_t> LaunchVariables::first_number(
    std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (has(name)) return number(name);
  }
  return std::nullopt;
}

std::optional<std::string> LaunchVariables::first_text(
    std::initializer_list<const char*> names) const {
  for (const char* name : names) {
    if (auto value = text(name)) return value;
  }
  return std::nullopt;
}

std::int64_t LaunchVariables::required_number(const std::string& name,
                                              const std::string& because) const {
  if (const auto value = number(name)) return *value;
  throw UserError({"environment variable " + name, "is not set, but " + because + " is",
                   "set both, or unset " + because + " for a run of one process"});
}

bool LaunchVariables::is_true(const std::string& name) const {
  const std::string value = text(name).value_or("");
  return value == "1" || value == "True" || value == "true" || value == "TRUE";
}

Endpoint master_endpoint(const std::string& text, const std::string& source,
                         std::int64_t least_port) {
  const std::optional<Endpoint> found = read_endpoint(text);
  if (!found || (found->port >= 0 && found->port < least_port))
    throw UserError({source, "is not an address: '" + text + "'",
                     "write HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535"});
  return *found;
}

}  // namespace megatron
