// From logits to the next token: temperature, then top-k, then top-p, then one draw by coordinates
// (base/philox.h), so that a prompt's text depends on the seed, its index and the position alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace megatron {

struct SamplingOptions {
  double temperature = 1.0;  ///< logits are divided by it; 0 = always the most likely token
  std::int64_t top_k = 0;    ///< keep the k most likely tokens (and those equal to the k-th); 0 =
                             ///< all, 1 = the most likely
  double top_p = 0;  ///< keep the most likely tokens until their probability exceeds it, the one
                     ///< that exceeds it included; 0 = all
  std::uint64_t seed = 1234;
};

/// UserError naming every flag that is out of range.
void check_sampling_options(const SamplingOptions& options);

/// A token that may be drawn.
struct TokenProbability {
  std::int64_t id = 0;
  double probability = 0;  ///< among the candidates: they sum to 1
};

/// The tokens that temperature, top-k and top-p leave, most likely first, equal ones by ascending
/// id. `logits` [vocabulary]; a NaN or +infinity is a UserError (damaged weights).
std::vector<TokenProbability> sampling_distribution(std::span<const float> logits,
                                                    const SamplingOptions& options);

/// Where the random number of one draw lies.
struct SamplingSite {
  std::uint64_t prompt = 0;    ///< index of the prompt in its run: Philox ordinal
  std::uint64_t position = 0;  ///< of the drawn token in its sequence: Philox element
};

/// A number in (0, 1) fixed by seed, site "sampling", prompt and position.
double sampling_uniform(std::uint64_t seed, const SamplingSite& site);

/// Draws one token.
std::int64_t sample_token(std::span<const float> logits, const SamplingOptions& options,
                          const SamplingSite& site);

}  // namespace megatron
