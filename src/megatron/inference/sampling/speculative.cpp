#include "megatron/inference/sampling/speculative.h"

#include <algorithm>
#include <unordered_map>

#include "megatron/base/error.h"

namespace megatron {
namespace {

double probability_of(std::int64_t id, std::span<const TokenProbability> distribution) {
  const auto found = std::ranges::find(distribution, id, &TokenProbability::id);
  return found == distribution.end() ? 0 : found->probability;
}

/// Returns max(0, target − draft), normalized.
std::vector<TokenProbability> residual(std::span<const TokenProbability> target,
                                       std::span<const TokenProbability> draft) {
  std::unordered_map<std::int64_t, double> drafted;
  for (const auto& [id, probability] : draft) drafted[id] = probability;
  std::vector<TokenProbability> rest;
  double sum = 0;
  for (const auto& [id, probability] : target) {
    const auto found = drafted.find(id);
    const double left = probability - (found == drafted.end() ? 0 : found->second);
    if (left <= 0) continue;
    rest.push_back({id, left});
    sum += left;
  }
  for (TokenProbability& one : rest) one.probability /= sum;
  return rest;
}

}  // namespace

Acceptance accept_drafts(std::span<const DraftToken> drafts,
                         std::span<const std::vector<TokenProbability>> targets, std::uint64_t seed,
                         SamplingSite site) {
  MEGATRON_CHECK(targets.size() == drafts.size() + 1, targets.size(), " distributions for ",
                 drafts.size(), " drafts");
  for (std::size_t i = 0;; ++i, ++site.position) {
    const std::vector<TokenProbability>& target = targets[i];
    const double uniform = sampling_uniform(seed, site);
    if (i == drafts.size() || drafts[i].distribution.empty()) {
      const std::int64_t drawn = draw_token(target, uniform);
      if (i < drafts.size() && drawn == drafts[i].id) continue;
      return {i, drawn};
    }
    const auto& [id, draft] = drafts[i];
    const double ratio = sampling_uniform(seed, site, "acceptance") * probability_of(id, draft);
    if (ratio < probability_of(id, target)) continue;
    // Rounding may leave nothing of two distributions that are nearly equal.
    const std::vector<TokenProbability> rest = residual(target, draft);
    return {i, draw_token(rest.empty() ? target : rest, uniform)};
  }
}

}  // namespace megatron
