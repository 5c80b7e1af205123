// One rule on several settings, for the lists of run_rules.cpp and model_rules.cpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/validate_settings.h"

namespace megatron {

/// A rule is left out when one of its fields could not be read.
struct Rule {
  std::vector<std::string_view> fields;
  bool (*is_violated)(const Settings& settings);
  UserError::Parts (*message)(const Settings& settings);
};

inline std::string text_of(std::int64_t value) { return std::to_string(value); }

/// Batches and the length of a run (batch_rules.cpp).
const std::vector<Rule>& batch_rules();
/// Validation: sets, batches, intervals (evaluation_rules.cpp).
const std::vector<Rule>& evaluation_rules();
/// Saving, keeping and loading checkpoints, and stopping (checkpoint_rules.cpp).
const std::vector<Rule>& checkpoint_rules();
/// What the parallel flags ask of each other, and the limits of this version (parallel_rules.cpp).
const std::vector<Rule>& parallel_rules();
/// What the flags of the pipeline ask of each other (pipeline_rules.cpp).
const std::vector<Rule>& pipeline_rules();
/// Whether the layers fit the pipeline (pipeline_rules.cpp).
const std::vector<Rule>& layout_rules();
/// What the degrees of parallelism ask of the architecture (parallel_rules.cpp).
const std::vector<Rule>& sharding_rules();

/// Evaluates every rule.
Problems evaluate(const std::vector<Rule>& rules, const Settings& settings, const FieldNames& skip);

}  // namespace megatron
