// The settings of the commands that run a trained model.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/engine_settings.h"
#include "megatron/config/field_table.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/sampling_params.h"
#include "megatron/config/server_options.h"
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
  EngineSettings engine;
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

struct FillMaskOptions : ModelOptions {
  TokenizerConfig tokenizer;
  std::vector<std::string> text;
  std::int64_t top_k = 5;
  bool json = false;
};

struct BatchOptions : ModelOptions {
  TokenizerConfig tokenizer;
  std::string requests;  ///< file of OpenAI's batch lines
  std::string output;    ///< file of answers; empty: standard output
  SpeculativeConfig speculative;
  bool as_finished = false;
  bool json = false;
};

struct ServeOptions : ModelOptions {
  TokenizerConfig tokenizer;
  SpeculativeConfig speculative;
  ServerOptions server;
};

struct EvaluateOptions : ModelOptions {
  TokenizerConfig tokenizer;
  std::vector<std::string> task;  ///< files, LAMBADA or WIKITEXT103
  std::string valid_data;         ///< file of LAMBADA or WIKITEXT103
  bool strict_lambada = false;
  std::optional<std::int64_t> seq_length;        ///< tokens in a window; none: as in training
  std::optional<std::int64_t> overlapping_eval;  ///< tokens from a window to the next
  bool json = false;

  /// Returns whether Megatron-LM has the task, whose data are in `valid_data`.
  static bool is_zero_shot(const std::string& task) {
    return task == "LAMBADA" || task == "WIKITEXT103";
  }
};

const FieldTable<GenerateOptions>& generate_table();
const FieldTable<ScoreOptions>& score_table();
const FieldTable<FillMaskOptions>& fill_mask_table();
const FieldTable<BatchOptions>& batch_table();
const FieldTable<ServeOptions>& serve_table();
const FieldTable<EvaluateOptions>& evaluate_table();

/// Parses the flags of `generate`. Also throws a UserError if there is no prompt, if more than one
/// type is given, or if the parallel sizes do not fit `world_size` ranks.
GenerateOptions read_generate_options(std::span<const std::string> args,
                                      std::int64_t world_size = 1);
ScoreOptions read_score_options(std::span<const std::string> args, std::int64_t world_size = 1);
FillMaskOptions read_fill_mask_options(std::span<const std::string> args,
                                       std::int64_t world_size = 1);
BatchOptions read_batch_options(std::span<const std::string> args, std::int64_t world_size = 1);
ServeOptions read_serve_options(std::span<const std::string> args, std::int64_t world_size = 1);
EvaluateOptions read_evaluate_options(std::span<const std::string> args,
                                      std::int64_t world_size = 1);

}  // namespace megatron
