// What a request may ask of the choice of its tokens, and of its end.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace megatron {

/// A number that is added to the logit of a token.
struct LogitBias {
  std::int64_t id = 0;
  double bias = 0;
};

/// The options of one request. `sampling.h` says in which order they change the distribution.
struct SamplingParams {
  double temperature = 1.0;  ///< divides the logits; 0 = always the most likely token
  /// Keep the k most likely tokens (and ties with the k-th); 0 = all, 1 = the most likely.
  std::int64_t top_k = 0;
  /// Keep the most likely tokens until their total probability exceeds top_p, including the token
  /// that exceeds it; 0 = all.
  double top_p = 0;
  /// Keep the tokens with at least min_p times the probability of the most likely one; 0 = all.
  double min_p = 0;
  /// Keep the tokens whose −log p is nearest to the entropy, until their total probability reaches
  /// typical_p (Meister et al., "Locally typical sampling", 2022); 0 and 1 = all.
  double typical_p = 0;
  /// Divides positive and multiplies negative logits of tokens in the prompt or the text; 1 = none.
  double repetition_penalty = 1;
  double presence_penalty = 0;   ///< subtracted from the logits of tokens in the text
  double frequency_penalty = 0;  ///< subtracted as often as the token is in the text
  std::vector<LogitBias> logit_bias = {};
  std::uint64_t seed = 1234;

  std::int64_t max_new_tokens = 128;
  std::int64_t min_new_tokens = 0;  ///< no stop token or stop string ends the text before
  std::vector<std::int64_t> stop_token_ids = {};  ///< tokens that end the text and are left out
  std::vector<std::string> stop_strings = {};     ///< texts that end the text and are left out
  bool ignore_eos = false;                        ///< add_end_tokens() adds nothing

  /// Report the log-probability of each token, and those of so many of the most likely ones.
  std::optional<std::int64_t> logprobs = {};
  bool prompt_logprobs = false;  ///< report the log-probabilities of the prompt's tokens

  std::int64_t n = 1;        ///< number of texts
  std::int64_t best_of = 0;  ///< number of texts of which the n best are returned; 0 = n
  std::int64_t num_beams = 1;
  /// A beam's score is its log-probability / (number of tokens ^ length_penalty).
  double length_penalty = 1;

  /// Returns how many texts are sampled, of which n are returned.
  std::int64_t num_samples() const { return best_of > 0 ? best_of : n; }
  /// Returns whether tokens need their log-probability.
  bool needs_logprobs() const { return logprobs.has_value() || num_samples() > n; }
};

/// Adds a model's end tokens to the stop tokens, unless ignore_eos is set.
void add_end_tokens(SamplingParams& params, std::span<const std::int64_t> ids);

/// Throws a UserError that names the flag of every option out of range. With a `vocab_size`, ids of
/// logit_bias must be below it.
void check_sampling_options(const SamplingParams& params, std::int64_t vocab_size = 0);

}  // namespace megatron
