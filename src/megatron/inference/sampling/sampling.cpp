#include "megatron/inference/sampling/sampling.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/name_list.h"
#include "megatron/base/philox.h"
#include "megatron/checkpoint/tensor_bytes.h"
#include "megatron/models/model.h"

namespace megatron {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

std::vector<std::string> non_finite_parameter_names(Model& model) {
  std::vector<std::string> names;
  model.visit([&](Module& module) {
    for (const auto& parameter : module.parameters())
      if (count_non_finite(parameter->gemm_weight().value) > 0) names.push_back(parameter->name());
  });
  return names;
}

struct TokenLogit {
  std::int64_t id;
  float logit;
};

bool more_likely(const TokenLogit& a, const TokenLogit& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

float largest_of(std::span<const float> logits) {
  return *std::max_element(logits.begin(), logits.end());
}

/// Sorts the next items behind the first `sorted`, which precede all others. Blocks grow with what
/// is sorted already. Returns how many are sorted then.
template <class T, class Before>
std::size_t sort_next(std::vector<T>& items, std::size_t sorted, Before before) {
  const std::size_t end = std::min(items.size(), 4 * sorted + 64);
  const auto at = [&](std::size_t i) { return items.begin() + static_cast<std::ptrdiff_t>(i); };
  if (end < items.size()) std::nth_element(at(sorted), at(end), items.end(), before);
  std::sort(at(sorted), at(end), before);
  return end;
}

/// The tokens of a row whose logits are at least `floor`, by rank. Only those near the asked ranks
/// are gathered and sorted: logits within a distance of the largest, which doubles.
class Ranking {
 public:
  Ranking(std::span<const float> logits, float floor, double scale)
      : logits_(logits), floor_(floor), largest_(largest_of(logits)), distance_(2 * scale) {}

  /// Returns the token of a rank; null: there are fewer tokens.
  const TokenLogit* at(std::size_t rank) {
    while (rank >= sorted_) {
      while (sorted_ == tokens_.size() && !has_all_) gather();
      if (sorted_ == tokens_.size()) return nullptr;
      sorted_ = sort_next(tokens_, sorted_, more_likely);
    }
    return &tokens_[rank];
  }

 private:
  static constexpr int kRounds = 6;

  void gather() {
    const double lowest =
        ++round_ < kRounds ? std::max<double>(floor_, largest_ - distance_) : floor_;
    has_all_ = lowest <= floor_;
    for (std::size_t i = 0; i < logits_.size(); ++i)
      if (logits_[i] >= lowest && (round_ == 1 || logits_[i] < gathered_))
        tokens_.push_back({static_cast<std::int64_t>(i), logits_[i]});
    gathered_ = lowest;
    distance_ *= 2;
  }

  std::span<const float> logits_;
  float floor_, largest_;
  double distance_;
  double gathered_ = 0;  ///< tokens_ has the logits from this one, once there was a round
  int round_ = 0;
  bool has_all_ = false;
  std::vector<TokenLogit> tokens_;
  std::size_t sorted_ = 0;
};

/// Returns the k-th largest logit, or −infinity if all tokens are kept.
float top_k_floor(std::span<const float> logits, std::int64_t top_k) {
  if (top_k <= 0 || top_k >= std::ssize(logits)) return -kInfinity;
  std::vector<float> values(logits.begin(), logits.end());
  const auto kth = values.begin() + (top_k - 1);
  std::nth_element(values.begin(), kth, values.end(), std::greater<>());
  return *kth;
}

/// The softmax of a row at a temperature over the tokens that top-k keeps.
class Softmax {
 public:
  Softmax(std::span<const float> logits, const SamplingParams& params)
      : largest_(largest_of(logits)),
        temperature_(params.temperature),
        floor_(top_k_floor(logits, params.top_k)) {
    for (const float logit : logits)
      if (keeps(logit)) sum_ += weight(logit);
  }
  float floor() const { return floor_; }
  double temperature() const { return temperature_; }
  bool keeps(float logit) const { return logit >= floor_; }
  /// Returns the probability relative to that of the most likely token.
  double weight(float logit) const { return std::exp((logit - largest_) / temperature_); }
  double probability(float logit) const { return weight(logit) / sum_; }

 private:
  double largest_, temperature_;
  float floor_;
  double sum_ = 0;
};

void normalize(std::vector<TokenProbability>& candidates) {
  double sum = 0;
  for (const TokenProbability& candidate : candidates) sum += candidate.probability;
  for (TokenProbability& candidate : candidates) candidate.probability /= sum;
}

/// Returns the tokens that top-k keeps, by rank, until their total probability exceeds `limit` or
/// their probabilities fall below min_p times the largest.
std::vector<TokenProbability> keep_most_likely(std::span<const float> logits,
                                               const Softmax& softmax, double limit, double min_p) {
  Ranking ranking(logits, softmax.floor(), softmax.temperature());
  std::vector<TokenProbability> kept;
  double before = 0;
  while (const TokenLogit* token = ranking.at(kept.size())) {
    const bool is_kept = before <= limit && softmax.weight(token->logit) >= min_p;
    if (!kept.empty() && !is_kept) break;
    kept.push_back({token->id, softmax.probability(token->logit)});
    before += kept.back().probability;
  }
  return kept;
}

/// Returns all tokens that top-k keeps, by id.
std::vector<TokenProbability> keep_all(std::span<const float> logits, const Softmax& softmax) {
  std::vector<TokenProbability> kept;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (softmax.keeps(logits[i]))
      kept.push_back({static_cast<std::int64_t>(i), softmax.probability(logits[i])});
  return kept;
}

/// Drops the tokens that typical_p does not keep. As transformers, it keeps ties with the last.
void keep_typical(std::vector<TokenProbability>& candidates, double typical_p) {
  double entropy = 0;
  for (const auto& [id, p] : candidates)
    if (p > 0) entropy -= p * std::log(p);
  const auto deviation = [&](const TokenProbability& candidate) {
    return std::abs(-std::log(candidate.probability) - entropy);
  };
  std::vector<std::pair<double, double>> ranked;  // deviations and probabilities
  for (const TokenProbability& candidate : candidates)
    ranked.emplace_back(deviation(candidate), candidate.probability);
  double mass = 0;
  std::size_t sorted = 0, kept = 0;
  while (kept < ranked.size() && mass < typical_p) {
    if (kept == sorted) sorted = sort_next(ranked, sorted, std::less<>());
    mass += ranked[kept++].second;
  }
  const double largest = ranked[kept - 1].first;
  std::erase_if(candidates, [&](const auto& candidate) { return deviation(candidate) > largest; });
  normalize(candidates);
}

/// Returns the tokens that the filters keep, by rank. If none but top-k does, tokens may be missing
/// from where the total probability exceeds `until`.
std::vector<TokenProbability> keep(std::span<const float> logits, const SamplingParams& params,
                                   double until) {
  if (params.temperature == 0 || params.top_k == 1)
    return {{std::max_element(logits.begin(), logits.end()) - logits.begin(), 1.0}};
  const bool has_top_p = params.top_p > 0 && params.top_p < 1;
  const bool has_min_p = params.min_p > 0;
  const bool has_typical_p = params.typical_p > 0 && params.typical_p < 1;
  const Softmax softmax(logits, params);
  std::vector<TokenProbability> kept;
  if (has_typical_p && !has_top_p && !has_min_p) {
    kept = keep_all(logits, softmax);
    keep_typical(kept, params.typical_p);
    std::ranges::sort(kept, [](const TokenProbability& a, const TokenProbability& b) {
      return a.probability != b.probability ? a.probability > b.probability : a.id < b.id;
    });
    return kept;
  }
  const double limit = has_top_p ? params.top_p : has_min_p ? kNoLimit : until;
  kept = keep_most_likely(logits, softmax, limit, params.min_p);
  if (has_top_p || has_min_p) normalize(kept);
  if (has_typical_p) keep_typical(kept, params.typical_p);
  return kept;
}

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

void throw_non_finite_logits(Model& model, const std::string& place, const std::string& got) {
  const std::vector<std::string> names = non_finite_parameter_names(model);
  const std::string weights =
      names.empty() ? "" : "; weights that are not finite:" + name_lines(names);
  throw UserError({place, got + weights,
                   "the run diverged or the weights are damaged: load an earlier checkpoint "
                   "(`megatron checkpoint verify` checks it)"});
}

bool are_sound_logits(std::span<const float> logits) {
  bool is_possible = false;
  for (const float x : logits) {
    if (!(x < kInfinity)) return false;
    is_possible |= x > -kInfinity;
  }
  return is_possible;
}

void check_logits(Model& model, std::span<const float> logits, const std::string& place) {
  if (are_sound_logits(logits)) return;
  const auto wrong = std::ranges::find_if(logits, [](float x) { return !(x < kInfinity); });
  if (wrong == logits.end())
    throw_non_finite_logits(model, place + ": every logit of the model", "-infinity");
  throw_non_finite_logits(
      model, place + ": the model's logit of token " + std::to_string(wrong - logits.begin()),
      std::isnan(*wrong) ? "NaN" : "infinity");
}

std::vector<TokenProbability> sampling_distribution(std::span<const float> logits,
                                                    const SamplingParams& params) {
  return keep(logits, params, kNoLimit);
}

double sampling_uniform(std::uint64_t seed, const SamplingSite& site, std::string_view name) {
  const auto lanes =
      philox_block(philox_key(seed, name), site.position / 4, site.prompt | (site.sample << 32));
  return (lanes[site.position % 4] + 0.5) / 4294967296.0;
}

std::int64_t draw_token(std::span<const TokenProbability> candidates, double uniform) {
  double remaining = uniform;
  for (const TokenProbability& candidate : candidates) {
    remaining -= candidate.probability;
    if (remaining < 0) return candidate.id;
  }
  const auto possible = std::find_if(candidates.rbegin(), candidates.rend(),
                                     [](const TokenProbability& c) { return c.probability > 0; });
  return possible->id;
}

std::int64_t sample_token(std::span<const float> logits, const SamplingParams& params,
                          const SamplingSite& site) {
  const double uniform = sampling_uniform(static_cast<std::uint64_t>(params.seed), site);
  return draw_token(keep(logits, params, uniform), uniform);
}

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

LogSoftmax::LogSoftmax(std::span<const float> logits) : largest_(largest_of(logits)) {
  log_sum_ =
      std::log(std::accumulate(logits.begin(), logits.end(), 0.0, [this](double sum, float x) {
        return sum + std::exp(x - largest_);
      }));
}

std::vector<std::int64_t> best_tokens(std::span<const float> logits, std::int64_t k) {
  Ranking ranking(logits, -kInfinity, 1);
  std::vector<std::int64_t> best;
  while (std::ssize(best) < k) {
    const TokenLogit* token = ranking.at(best.size());
    if (token == nullptr) break;
    best.push_back(token->id);
  }
  return best;
}

}  // namespace megatron
