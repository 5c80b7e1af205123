// Speculative decoding: which proposed tokens are accepted, so that a text has exactly the target
// model's distribution (Leviathan et al., "Fast inference from transformers via speculative
// decoding", ICML 2023).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "megatron/inference/sampling/sampling.h"

namespace megatron {

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

}  // namespace megatron
