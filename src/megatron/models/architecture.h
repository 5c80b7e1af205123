// The members of TransformerConfig as a table: how an architecture is stored in a checkpoint,
// compared with another and merged with flags.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

/// Members that decide shapes or the forward function.
const FieldTable<TransformerConfig>& forward_members();
/// Members that only training uses, or that only choose a numeric precision: dropout,
/// initialisation, fp32 switches.
const FieldTable<TransformerConfig>& training_members();

/// Every member as a JSON object, and back. UserErrors name `source` and the member; the sizes are
/// checked with `check_sizes`.
Json architecture_to_json(const TransformerConfig& config);
TransformerConfig architecture_from_json(const Json& json, const std::string& source);

/// UserError naming `source` when a size is missing, absurd or does not divide (heads by groups).
void check_sizes(const TransformerConfig& config, const std::string& source);

/// The same forward function in one spelling: derived sizes filled in, members without effect at
/// their defaults.
TransformerConfig canonical_architecture(TransformerConfig config);

struct ArchitectureDifference {
  std::string member, left, right;
};

/// The forward members in which two architectures differ, in canonical spelling.
std::vector<ArchitectureDifference> forward_differences(const TransformerConfig& left,
                                                        const TransformerConfig& right);

}  // namespace megatron
