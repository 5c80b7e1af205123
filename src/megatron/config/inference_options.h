// The settings of `generate` and `score`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"
#include "megatron/config/settings.h"

namespace megatron {

/// In which numbers a model computes: the checkpoint's own unless one is set.
struct ComputeOptions {
  bool bf16 = false, fp16 = false, fp32 = false;
};

/// Which model is run, and how it is cut over the ranks.
struct ModelOptions : ComputeOptions {
  std::string load;
  std::optional<std::int64_t> ckpt_step;
  ParallelConfig parallel;
  Settings run;  ///< flags of a training run, given as they stand in its script: the architecture
                 ///< must be the checkpoint's
  ParseResult parsed;  ///< what was given, and remarks for stderr
};

struct GenerateOptions : ModelOptions {
  TokenizerConfig tokenizer;
  std::vector<std::string> prompt, prompts;  ///< read_generate_options() appends prompts to prompt
  std::string prompt_file;
  std::optional<std::int64_t> prompt_file_num_truncate;  ///< prompts taken of the file; none: all
  std::int64_t max_new_tokens = 128;
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 0;
  std::int64_t seed = 1234;
  std::optional<std::int64_t> termination_id;  ///< ends a text in place of the tokenizer's ids
  bool json = false;
};

struct ScoreOptions : ModelOptions {
  std::string input;  ///< file of JSON lines; empty: standard input
};

const FieldTable<GenerateOptions>& generate_table();
const FieldTable<ScoreOptions>& score_table();

/// Parses the flags of `generate`; a UserError also when there is no prompt, more than one kind of
/// numbers, or no way to cut a model over `world_size` ranks as the flags say.
GenerateOptions read_generate_options(std::span<const std::string> args,
                                      std::int64_t world_size = 1);
ScoreOptions read_score_options(std::span<const std::string> args, std::int64_t world_size = 1);

}  // namespace megatron
