// Samples the next token from logits. The options change the logits in this order:
//   1. as vLLM (sequence_sampler.h): stop tokens before min_new_tokens, logit_bias,
//      repetition_penalty, frequency_penalty, presence_penalty, bad_words, and constraints, which
//      leave the logits of what they allow as they are;
//   2. as the warpers of transformers: temperature, top_k, top_p, min_p, typical_p. Each filter
//      sees the distribution that the one before it left, normalised. Top-k and top-p have
//      Megatron-LM's borders (megatron/core/inference: sampling): top-k keeps ties with the k-th
//      logit, except that 1 is the most likely token alone; top-p drops a token when the tokens
//      before it already exceed p.
// Then one token is drawn. The random number is a function of coordinates (base/philox.h), so a
// text depends only on the seed, the index of its prompt, its number among the samples of the
// prompt, and the position. Nothing sorts the vocabulary: tokens are ranked as far as they are
// read.
// Speculative decoding proposes tokens and accepts them so that a text has exactly the target
// model's distribution (Leviathan et al., "Fast inference from transformers via speculative
// decoding", ICML 2023).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/sampling_params.h"

namespace megatron {

class Model;

/// Throws UserError: names the non-finite values at `place` and the weights of `model` that are not
/// finite.
[[noreturn]] void throw_non_finite_logits(Model& model, const std::string& place,
                                          const std::string& got);

/// Returns whether logits can be sampled from: none is NaN or +infinity, and not all are −infinity,
/// which marks an impossible token.
bool are_sound_logits(std::span<const float> logits);

/// Calls throw_non_finite_logits() unless are_sound_logits().
void check_logits(Model& model, std::span<const float> logits, const std::string& place);

/// A candidate token.
struct TokenProbability {
  std::int64_t id = 0;
  double probability = 0;  ///< normalized over the candidates
};

/// Returns the tokens that remain after temperature and filters, most likely first, ties by
/// ascending id. `logits` [vocabulary] are sound.
std::vector<TokenProbability> sampling_distribution(std::span<const float> logits,
                                                    const SamplingParams& params);

/// Coordinates of the random number of one draw.
struct SamplingSite {
  std::uint64_t prompt = 0;    ///< index of the prompt in its run: low half of the Philox ordinal
  std::uint64_t position = 0;  ///< position of the sampled token in its sequence: Philox element
  std::uint64_t sample = 0;    ///< number of the text among those of the prompt: high half
};

/// Returns a uniform number in (0, 1) determined by seed, the name of the site and the coordinates.
double sampling_uniform(std::uint64_t seed, const SamplingSite& site,
                        std::string_view name = "sampling");

/// Returns the candidate in whose share of (0, 1) a uniform number lies.
std::int64_t draw_token(std::span<const TokenProbability> candidates, double uniform);

/// Samples one token: draw_token() of sampling_distribution(), of which it computes what it needs.
std::int64_t sample_token(std::span<const float> logits, const SamplingParams& params,
                          const SamplingSite& site);

/// A token that a draft proposes.
struct DraftToken {
  std::int64_t id = 0;
  /// The distribution that the token was drawn from, by random numbers of the site "draft". Empty:
  /// the draft had no choice, as with n-gram lookup and greedy drafts.
  std::vector<TokenProbability> distribution = {};
};

/// Returns the token at `site`, where `draft` was proposed and the target has a distribution. It is
/// the draft if that is accepted; what was proposed behind another token is then void. Where the
/// draft had no choice, it is the token that is drawn without drafts, and so is the text.
std::int64_t draw_with_draft(const DraftToken& draft, std::span<const TokenProbability> target,
                             std::uint64_t seed, const SamplingSite& site);

/// log softmax of a row, computed in double.
class LogSoftmax {
 public:
  explicit LogSoftmax(std::span<const float> logits);
  double operator()(float logit) const { return logit - largest_ - log_sum_; }

 private:
  double largest_, log_sum_ = 0;
};

/// Returns the k most likely tokens, the most likely first, ties by ascending id.
std::vector<std::int64_t> best_tokens(std::span<const float> logits, std::int64_t k);

}  // namespace megatron
