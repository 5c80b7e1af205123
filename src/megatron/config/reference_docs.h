// Generates the reference documentation from the tables: docs/config.md and the manual page.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// Returns docs/config.md: every setting of a run by group, then Megatron-LM's flags that are known
/// but have no effect.
std::string config_markdown();

/// The entry of one command in the manual.
struct CommandManual {
  std::string_view name;
  std::string_view summary;
  const FieldSet* fields = nullptr;  ///< null if only the engine knows the fields
};

/// Returns the manual page megatron(1) in troff's man macros.
std::string manual_page(std::span<const CommandManual> commands, std::string_view version);

}  // namespace megatron
