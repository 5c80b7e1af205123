// The settings of `generate` and `score`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/config/field_table.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
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
  std::int64_t max_new_tokens = 128;
  double temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 0, min_p = 0, typical_p = 0;
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<std::int64_t, double>> logit_bias;  ///< token ids and what is added
  std::int64_t seed = 1234;
  std::int64_t min_new_tokens = 0;
  std::optional<std::int64_t> termination_id;  ///< end token; none: those of the tokenizer
  bool ignore_eos = false;
  std::vector<std::string> stop,
      stop_words;  ///< read_generate_options() appends stop_words to stop
  std::int64_t n = 1, best_of = 0, num_beams = 1;
  double length_penalty = 1;
  bool json = false;
  std::int64_t logprobs = 0;  ///< number of most likely tokens to print
  bool return_log_probs = false, skip_prompt_log_probs = false, prompt_logprobs = false;

  bool prints_logprobs() const { return return_log_probs || logprobs > 0; }
  bool prints_prompt_logprobs() const {
    return prompt_logprobs || (return_log_probs && !skip_prompt_log_probs);
  }
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
