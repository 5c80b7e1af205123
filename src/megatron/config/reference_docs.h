// The reference documentation, made from the tables: docs/config.md and the manual page.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "megatron/config/field.h"

namespace megatron {

/// docs/config.md: every setting of a run by group, then Megatron-LM's flags that are known without
/// effect.
std::string config_markdown();

/// What the manual says about one command.
struct CommandManual {
  std::string_view name;
  std::string_view summary;
  const FieldSet* fields = nullptr;  ///< null when only the engine knows them
};

/// The manual page megatron(1) in troff's man macros.
std::string manual_page(std::span<const CommandManual> commands, std::string_view version);

}  // namespace megatron
