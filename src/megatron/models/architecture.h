// The members of TransformerConfig as tables. They define how an architecture is stored in a
// checkpoint, compared with another and merged with flags.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/base/json_fwd.h"
#include "megatron/config/field_table.h"

namespace megatron {

struct TransformerConfig;

/// Returns the members that decide shapes or the forward function: the settings of this role in
/// transformer_table(), and members that no flag of its name sets, such as vocab_size.
const FieldTable<TransformerConfig>& forward_members();
/// Returns the members that only training uses or that only choose a numeric precision: dropout,
/// initialisation, fp32 switches, balancing of experts. Members of MoeConfig that only say how a
/// run dispatches and logs tokens are in neither table.
const FieldTable<TransformerConfig>& training_members();

/// Converts every member to a JSON object, and back. A model without experts has no members of
/// experts; where they are missing, they have their defaults. Throws UserError naming `source` and
/// the member; reading also runs check_sizes().
Json architecture_to_json(const TransformerConfig& config);
TransformerConfig architecture_from_json(const Json& json, const std::string& source);

/// The largest numbers of layers and experts, and widths of layers and heads, that check_sizes()
/// takes.
inline constexpr std::int64_t kMostLayers = 10'000, kMostExperts = 100'000,
                              kWidest = std::int64_t{1} << 24;

/// Throws UserError naming `source` when a size is missing, absurd, or not divisible (heads by
/// groups).
void check_sizes(const TransformerConfig& config, const std::string& source);

/// Returns the architecture in canonical spelling: derived sizes are filled in, and members without
/// effect have their defaults. The forward function is the same.
TransformerConfig canonical_architecture(TransformerConfig config);

/// A member in which two architectures differ, with both values.
struct ArchitectureDifference {
  std::string member, left, right;
};

/// Returns the name of the setting that gives a member: lists of layers have another spelling.
std::string setting_of_member(const std::string& member);

/// Returns the forward members in which two architectures differ, in canonical spelling.
std::vector<ArchitectureDifference> forward_differences(const TransformerConfig& left,
                                                        const TransformerConfig& right);

}  // namespace megatron
