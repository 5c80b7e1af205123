// Refuses flags of a command that the chosen action does not use, so that none is ignored.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "megatron/config/command_line.h"
#include "megatron/config/field.h"

namespace megatron {

/// The actions of a command that use a flag, or the flags of a group of the help.
struct FlagActions {
  std::string_view name;                  ///< of a field or of a group
  std::vector<std::string_view> actions;  ///< empty: none, only runs do
};

/// Returns the actions that use the field: those of its name, or else those of its group. A field
/// that `uses` does not know is a broken invariant.
const std::vector<std::string_view>& actions_of(const Field& field,
                                                std::span<const FlagActions> uses);

/// Throws a UserError for all flags that are given and that `action` does not use. It names the
/// actions that use them.
void refuse_unused_flags(const FieldSet& fields, const ParseResult& parsed, std::string_view action,
                         std::span<const FlagActions> uses);

}  // namespace megatron
