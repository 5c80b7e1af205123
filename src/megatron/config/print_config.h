// What a run will use, for people and for scripts.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/config/run_settings.h"

namespace megatron {

/// Every setting with its value and origin, by group, in columns. Values that follow from others
/// are shown as resolve() makes them.
std::string config_text(const RunConfig& run);

/// The same as JSON: {"num_layers": {"value": 12, "origin": "flag", "where": "--num-layers"}, …}.
std::string config_json(const RunConfig& run);

/// Every setting's name and value in Python's spelling, sorted by name.
std::vector<std::pair<std::string, std::string>> argument_values(const Settings& settings);

/// Megatron-LM's dump of its arguments, sorted, with dots up to column 48.
std::string argument_dump(const Settings& settings);

}  // namespace megatron
