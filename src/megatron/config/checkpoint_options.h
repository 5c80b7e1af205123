// The settings of `convert` and `checkpoint`.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {

struct ConvertOptions {
  std::string load, save, format, hf_model_type, dtype;
  std::optional<std::int64_t> ckpt_step;
  bool keep_non_finite = false;
  TokenizerConfig tokenizer;
  ParseResult parsed;  ///< origins of the settings
};

struct CheckpointOptions {
  std::string action;  ///< inspect, verify, diff, gc
  std::vector<std::string> folders;
  bool json = false, all = false, dry_run = false;
  std::optional<std::int64_t> keep;
};

const FieldTable<ConvertOptions>& convert_table();
const FieldTable<CheckpointOptions>& checkpoint_command_table();

/// Parses the flags of `convert`.
ConvertOptions read_convert_options(std::span<const std::string> args);
/// Parses the arguments of `checkpoint`. Also throws a UserError if the number of folders does not
/// fit the action.
CheckpointOptions read_checkpoint_options(std::span<const std::string> args);

}  // namespace megatron
