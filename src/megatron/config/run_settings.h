// The settings of a run from all their sources: defaults < --config file < environment < flags.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "megatron/config/command_line.h"
#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

/// What `megatron pretrain` is told.
struct RunOptions {
  std::string model = "gpt";
  std::vector<std::string> config;  ///< files; a later one wins
  bool print_config = false;
  bool json = false;
  Settings settings;
};

/// The options, and where each came from.
struct RunConfig {
  RunOptions options;
  ParseResult parsed;
};

/// The flags of `megatron pretrain`, Megatron-LM's known but unused ones included.
const FieldTable<RunOptions>& run_table();

/// Reads files, environment and flags, and checks what can be checked before a checkpoint is read:
/// validate_run, check_world, and without
/// --load also validate_model (on a resolved copy). With --print-config only the reading is
/// checked. The settings are returned unresolved: merge the checkpoint's architecture where
/// parsed.is_set(name) is false, then call resolve() and validate_model(). Throws one UserError
/// with all mistakes.
RunConfig read_run(std::span<const std::string> args, std::int64_t world_size = 1);

}  // namespace megatron
