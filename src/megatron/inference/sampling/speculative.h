// Speculative decoding: which proposed tokens are accepted, so that a text has exactly the target
// model's distribution (Leviathan et al., "Fast inference from transformers via speculative
// decoding", ICML 2023).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "megatron/inference/sampling/sampling.h"

namespace megatron {

/// A token that a draft proposes.
struct DraftToken {
  std::int64_t id = 0;
  /// The distribution that the token was drawn from, by random numbers of another site than
  /// "sampling" and "acceptance". Empty: the draft had no choice, as with n-gram lookup and greedy
  /// drafts.
  std::vector<TokenProbability> distribution = {};
};

struct Acceptance {
  std::size_t num_accepted = 0;  ///< of the drafts, from the first
  std::int64_t next = 0;         ///< the token behind them
};

/// Decides about `drafts`, the first of which is at `site`. `targets` are the target's
/// distributions at the positions of the drafts, and at the one behind them. A token where a draft
/// had no choice, and the one behind all drafts, is the token that would be drawn without drafts:
/// then the text is the same with and without speculation.
Acceptance accept_drafts(std::span<const DraftToken> drafts,
                         std::span<const std::vector<TokenProbability>> targets, std::uint64_t seed,
                         SamplingSite site);

}  // namespace megatron
