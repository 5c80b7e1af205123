// Samples the next token from logits: rejects the output of a model whose weights are damaged or
// diverged, applies temperature, top-k and top-p, then draws one token. The random number is a
// function of coordinates (base/philox.h), so a prompt's text depends only on the seed, its index
// and the position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace megatron {

class Model;

/// Throws UserError: names the non-finite values at `place` and the weights of `model` that are not
/// finite.
[[noreturn]] void throw_non_finite_logits(Model& model, const std::string& place,
                                          const std::string& got);

/// Calls throw_non_finite_logits() when a logit is NaN or +infinity, or when all are −infinity: one
/// that is marks an impossible token.
void check_logits(Model& model, std::span<const float> logits, const std::string& place);

struct SamplingOptions {
  double temperature = 1.0;  ///< divides the logits; 0 = always the most likely token
  /// Keep the k most likely tokens (and ties with the k-th); 0 = all, 1 = the most likely.
  std::int64_t top_k = 0;
  /// Keep the most likely tokens until their total probability exceeds top_p, including the token
  /// that exceeds it; 0 = all.
  double top_p = 0;
  std::uint64_t seed = 1234;
};

/// Throws UserError that names every option out of range.
void check_sampling_options(const SamplingOptions& options);

/// A candidate token.
struct TokenProbability {
  std::int64_t id = 0;
  double probability = 0;  ///< normalized over the candidates
};

/// Returns the tokens that remain after temperature, top-k and top-p, most likely first, ties by
/// ascending id. `logits` [vocabulary] have passed check_logits().
std::vector<TokenProbability> sampling_distribution(std::span<const float> logits,
                                                    const SamplingOptions& options);

/// Coordinates of the random number of one draw.
struct SamplingSite {
  std::uint64_t prompt = 0;    ///< index of the prompt in its run: Philox ordinal
  std::uint64_t position = 0;  ///< position of the sampled token in its sequence: Philox element
};

/// Returns a uniform number in (0, 1) determined by seed, site "sampling", prompt and position.
double sampling_uniform(std::uint64_t seed, const SamplingSite& site);

/// Samples one token.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          const SamplingSite& site);

}  // namespace megatron
