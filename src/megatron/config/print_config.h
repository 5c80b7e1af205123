// Prints the settings of a run as text, as JSON and as Megatron-LM prints them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/config/run_settings.h"

namespace megatron {

struct Settings;

/// Returns every setting with its value and origin, by group, in columns. Derived values are those
/// that resolve() computes.
std::string config_text(const RunConfig& run);

/// Returns the same settings as JSON:
/// {"num_layers": {"value": 12, "origin": "flag", "where": "--num-layers"}, …}.
std::string config_json(const RunConfig& run);

/// Returns the name and the value, in Python's syntax, of every setting, sorted by name.
std::vector<std::pair<std::string, std::string>> argument_values(const Settings& settings);

/// Returns the arguments in the format of Megatron-LM: sorted, with dots up to column 48.
std::string argument_dump(const Settings& settings);

}  // namespace megatron
