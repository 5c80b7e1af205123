// What a request may ask of the choice of its tokens, and of its end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megatron {

template <class Options>
class FieldTable;

/// A number that is added to the logit of a token.
struct LogitBias {
  std::int64_t id = 0;
  double bias = 0;
};

/// What the text of a request must be: it ends only where it fits, or at the limit of tokens.
struct OutputConstraint {
  enum class Kind : std::uint8_t { none, regex, choice, json_schema, json_object };
  Kind kind = Kind::none;
  std::vector<std::string> texts = {};  ///< the expression or schema, or the choices
};

/// The options of one request. `inference/sampling/sampling.h` says in which order they change the
/// distribution, and sampling_table() what they do.
struct SamplingParams {
  double temperature = 1.0;
  std::int64_t top_k = 0;
  double top_p = 0, min_p = 0;
  double typical_p = 0;  ///< Meister et al., "Locally typical sampling", 2022
  double repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  std::vector<LogitBias> logit_bias = {};
  std::int64_t seed = 1234;

  std::int64_t max_new_tokens = 128, min_new_tokens = 0;
  std::vector<std::int64_t> stop_token_ids = {};  ///< tokens that end the text and are left out
  std::optional<std::int64_t> termination_id = {};
  bool ignore_eos = false;
  std::vector<std::string> stop = {};  ///< texts that end the text and are left out
  bool skip_special_tokens = true;     ///< the text, also where it is read for `stop`, has none
  bool include_stop = false;           ///< the string of `stop` that ends the text is a part of it
  std::vector<std::string> bad_words = {};                   ///< the text has none of them
  std::vector<std::vector<std::int64_t>> bad_word_ids = {};  ///< set by the engine

  bool return_log_probs = false;  ///< report the log-probability of each token
  std::int64_t logprobs = 0;      ///< report so many of the most likely tokens, too
  bool prompt_logprobs = false;   ///< report the log-probabilities of the prompt's tokens
  /// With `prompt_logprobs`, report so many of the most likely tokens of the prompt, if that is
  /// more than `logprobs`; −1: it is not asked.
  std::int64_t prompt_best = -1;
  std::int64_t n = 1, best_of = 0, num_beams = 1;
  double length_penalty = 1;
  bool return_routed_experts = false;  ///< report the experts of each token; not with beams

  OutputConstraint constraint = {};
  /// The constraint begins behind these tokens, such as those that end thinking; none: at once.
  std::vector<std::int64_t> constraint_starts_after = {};
  std::vector<std::int64_t> allowed_token_ids = {};  ///< none: all
  /// After so many tokens the tokens that end thinking follow, unless they were said before; −1:
  /// there is no limit.
  std::int64_t thinking_budget = -1;
  std::vector<std::int64_t> end_thinking_ids = {};

  /// Returns how many texts are sampled, of which n are returned.
  std::int64_t num_samples() const { return best_of > 0 ? best_of : n; }
  bool reports_logprobs() const { return return_log_probs || logprobs > 0; }
  /// Returns whether tokens need their log-probability.
  bool needs_logprobs() const { return reports_logprobs() || num_samples() > n; }
  /// Adds termination_id, or else the model's end tokens unless ignore_eos is set, to the stop
  /// tokens.
  void add_end_tokens(std::span<const std::int64_t> of_model);
};

const FieldTable<SamplingParams>& sampling_table();

/// Throws a UserError that names the flag of every option out of range. With a `vocab_size`, token
/// ids must be below it.
void check_sampling_options(const SamplingParams& params, std::int64_t vocab_size = 0);

}  // namespace megatron
