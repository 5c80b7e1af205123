// The settings of `generate` and `score`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/field_table.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/sampling_params.h"
#include "megatron/config/settings.h"
#include "megatron/config/speculative_config.h"
#include "megatron/config/tokenizer_config.h"

namespace megatron {

/// The type in which a model computes. If none is set, it is that of the checkpoint.
struct ComputeOptions {
  bool bf16 = false, fp16 = false, fp32 = false;
};

/// The model to run and its sharding over the ranks.
struct ModelOptions : ComputeOptions {
  std::string load;
  std::optional<std::int64_t> ckpt_step;
  bool cache_mla_latents = false;
  ParallelConfig parallel;
  /// Flags of a training run, which are accepted so that its script can be reused. The architecture
  /// must agree with the checkpoint.
  Settings run;
  ParseResult parsed;  ///< origins of the settings, and notes for stderr
};

struct GenerateOptions : ModelOptions {
  TokenizerConfig tokenizer;
  std::vector<std::string> prompt, prompts;  ///< read_generate_options() appends prompts to prompt
  std::string prompt_file;
  std::optional<std::int64_t> prompt_file_num_truncate;  ///< prompts to read; none: all
  /// read_generate_options() appends stop_words to stop and decides prompt_logprobs.
  SamplingParams sampling;
  SpeculativeConfig speculative;
  std::vector<std::string> stop_words;
  bool skip_prompt_log_probs = false;
  bool json = false;
};

struct ScoreOptions : ModelOptions {
  std::string input;  ///< file of JSON lines; empty: standard input
};

const FieldTable<GenerateOptions>& generate_table();
const FieldTable<ScoreOptions>& score_table();

/// Parses the flags of `generate`. Also throws a UserError if there is no prompt, if more than one
/// type is given, or if the parallel sizes do not fit `world_size` ranks.
GenerateOptions read_generate_options(std::span<const std::string> args,
                                      std::int64_t world_size = 1);
ScoreOptions read_score_options(std::span<const std::string> args, std::int64_t world_size = 1);

}  // namespace megatron
