#include "megatron/inference/sampling/speculative.h"

#include <algorithm>
#include <unordered_map>

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

std::int64_t draw_with_draft(const DraftToken& draft, std::span<const TokenProbability> target,
                             std::uint64_t seed, const SamplingSite& site) {
  const double uniform = sampling_uniform(seed, site);
  const auto& [id, distribution] = draft;
  if (distribution.empty()) return draw_token(target, uniform);
  const double ratio =
      sampling_uniform(seed, site, "acceptance") * probability_of(id, distribution);
  if (ratio < probability_of(id, target)) return id;
  // Rounding may leave nothing of two distributions that are nearly equal.
  const std::vector<TokenProbability> rest = residual(target, distribution);
  return draw_token(rest.empty() ? target : rest, uniform);
}

}  // namespace megatron
