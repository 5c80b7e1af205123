// Reads the settings of a run from all sources. Flags have precedence over the environment, the
// environment over --config files, and these over --deepspeed-config.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/config/command_line.h"
#include "megatron/config/field_table.h"
#include "megatron/config/problems.h"
#include "megatron/config/settings.h"

namespace megatron {

/// The options of `megatron pretrain`.
struct RunOptions {
  std::string model = "gpt";
  std::vector<std::string> config;  ///< files; later files have precedence
  std::string deepspeed_config;     ///< DeepSpeed's file
  std::optional<std::int64_t> gradient_accumulation_steps;
  bool print_config = false;
  bool json = false;
  Settings settings;
};

/// The options and their origins.
struct RunConfig {
  RunOptions options;
  ParseResult parsed;
};

/// Counts the layers of both stacks of T5, of which flags give those of the encoder and, if it has
/// another number, of the decoder. Its tied output layer has a bias by default, as in Megatron-LM.
/// Call it once on what flags have set.
void resolve_stacks(const std::string& family, const ParseResult& parsed, TransformerConfig& model);

/// Refuses what does not go with the family: layers of another one, such as those of a hybrid
/// pattern, and samples that it does not read. Notes what only another family reads.
Problems check_family(const std::string& family, const Settings& settings);

/// Returns the flags of `megatron pretrain`, including Megatron-LM's flags that have no effect.
const FieldTable<RunOptions>& run_table();

/// Reads files, environment and flags. Calls validate_run(), check_world() and, without --load,
/// validate_model() on a resolved copy; with --print-config it calls none of them. Returns the
/// settings unresolved: the caller merges the checkpoint's architecture where parsed.is_set(name)
/// is false, then calls resolve() and validate_model(). Throws one UserError with all mistakes.
/// `families` names the model families; empty: those of the library.
RunConfig read_run(std::span<const std::string> args, std::int64_t world_size = 1,
                   const std::vector<std::string>& families = {});

}  // namespace megatron
