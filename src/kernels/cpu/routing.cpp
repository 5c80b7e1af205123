// Routing is a small part of a layer: plain loops over the experts of a token.
#include "kernels/cpu/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace megatron::kernels {
namespace {

constexpr double kSumEpsilon = 1e-20;  // Megatron Core's, in the division by a sum of scores

template <class T>
T log_sum_exp(const T* x, std::int64_t count) {
  const T most = *std::max_element(x, x + count);
  T sum = 0;
  for (std::int64_t i = 0; i < count; ++i) sum += std::exp(x[i] - most);
  return most + std::log(sum);
}

template <class T>
void softmax(const T* x, std::int64_t count, T* out) {
  const T lse = log_sum_exp(x, count);
  for (std::int64_t i = 0; i < count; ++i) out[i] = std::exp(x[i] - lse);
}

template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

template <class T>
T softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

/// Returns the score of a logit by itself, for functions other than softmax.
template <class T>
T own_score(RouterScore score, T logit) {
  return score == RouterScore::sigmoid ? sigmoid(logit) : std::sqrt(softplus(logit));
}

/// Returns the derivative of own_score(), whose value is `score`.
template <class T>
T own_slope(RouterScore kind, T logit, T score) {
  if (kind == RouterScore::sigmoid) return score * (1 - score);
  return score > 0 ? sigmoid(logit) / (2 * score) : T(0);
}

/// Appends the `count` best of the candidates [first, last) to `best`, by falling score and, of
/// equal scores, by rising index.
template <class T>
void add_best(const T* scores, std::int64_t first, std::int64_t last, std::size_t count,
              std::vector<std::int32_t>& best) {
  for (std::int64_t e = first; e < last; ++e) {
    if (best.size() == count && !(scores[e] > scores[best.back()])) continue;
    if (best.size() == count) best.pop_back();
    auto place = best.end();
    while (place != best.begin() && scores[e] > scores[*(place - 1)]) --place;
    best.insert(place, static_cast<std::int32_t>(e));
  }
}

/// Routes one token after the other. It holds the scratch memory of a thread.
template <class T>
struct TokenRouting {
  explicit TokenRouting(const RoutingRule& rule)
      : rule(rule),
        scores(static_cast<std::size_t>(rule.num_experts)),
        ranking(scores.size()),
        group_scores(static_cast<std::size_t>(rule.num_groups)) {
    chosen.reserve(static_cast<std::size_t>(rule.topk) + 1);
  }

  /// Computes the scores that experts are ranked by. A score that is NaN comes first, so that it
  /// reaches the loss; a choice that is NaN comes last.
  void rank(const T* logits, const float* bias, const T* choice) {
    const std::int64_t experts = rule.num_experts;
    if (rule.score != RouterScore::softmax) {
      for (std::int64_t e = 0; e < experts; ++e) scores[e] = own_score(rule.score, logits[e]);
    } else if (rule.pre_softmax || bias != nullptr) {
      softmax(logits, experts, scores.data());
    } else {
      std::copy_n(logits, experts, scores.data());
    }
    for (std::int64_t e = 0; e < experts; ++e) {
      const T score = scores[e] + T(bias != nullptr ? bias[e] : 0);
      ranking[e] = std::isnan(score)       ? std::numeric_limits<T>::infinity()
                   : choice == nullptr     ? score
                   : std::isnan(choice[e]) ? std::numeric_limits<T>::lowest()
                                           : choice[e];
    }
  }

  void choose() {
    const std::int64_t groups = rule.num_groups, size = rule.num_experts / groups;
    chosen.clear();
    if (rule.group_topk < groups) {
      best_groups.clear();
      for (std::int64_t g = 0; g < groups; ++g) {
        chosen.clear();
        add_best(ranking.data(), g * size, (g + 1) * size,
                 static_cast<std::size_t>(rule.num_scored()), chosen);
        group_scores[g] = 0;
        for (const std::int32_t e : chosen) group_scores[g] += ranking[e];
      }
      add_best(group_scores.data(), 0, groups, static_cast<std::size_t>(rule.group_topk),
               best_groups);
      std::sort(best_groups.begin(), best_groups.end());
      chosen.clear();
      for (const std::int32_t g : best_groups)
        add_best(ranking.data(), g * size, (g + 1) * size, static_cast<std::size_t>(rule.topk),
                 chosen);
    } else {
      add_best(ranking.data(), 0, rule.num_experts, static_cast<std::size_t>(rule.topk), chosen);
    }
    std::sort(chosen.begin(), chosen.end());
  }

  /// Writes the probabilities of the chosen experts.
  void write_probs(const T* logits, T* probs) const {
    const auto k = static_cast<std::size_t>(rule.topk);
    for (std::size_t i = 0; i < k; ++i) probs[i] = scores[chosen[i]];
    if (rule.normalizes()) {
      if (rule.score == RouterScore::softmax) {
        for (std::size_t i = 0; i < k; ++i) probs[i] = logits[chosen[i]];
        softmax(probs, rule.topk, probs);
      } else {
        const T sum = std::accumulate(probs, probs + k, T(0)) + T(kSumEpsilon);
        for (std::size_t i = 0; i < k; ++i) probs[i] /= sum;
      }
    }
    for (std::size_t i = 0; i < k; ++i) probs[i] *= T(rule.scaling_factor);
  }

  /// Writes scores of all experts that sum to one.
  void write_scores(const T* logits, T* out) const {
    const std::int64_t experts = rule.num_experts;
    if (rule.score == RouterScore::softmax) return softmax(logits, experts, out);
    const T sum = std::accumulate(scores.begin(), scores.end(), T(0)) + T(kSumEpsilon);
    for (std::int64_t e = 0; e < experts; ++e) out[e] = scores[e] / sum;
  }

  RoutingRule rule;
  std::vector<T> scores, ranking, group_scores;
  std::vector<std::int32_t> chosen, best_groups;
};

/// Computes the gradients of one token after the other.
template <class T>
struct TokenRoutingGradient {
  explicit TokenRoutingGradient(const RoutingRule& rule)
      : rule(rule), scores(static_cast<std::size_t>(rule.num_experts)) {}

  /// Adds scale·scores·(d − Σ d·scores), the gradient through a softmax of all logits.
  void add_softmax(const T* d, T* dlogits) const {
    T dot = 0;
    for (std::size_t e = 0; e < scores.size(); ++e) dot += d[e] * scores[e];
    for (std::size_t e = 0; e < scores.size(); ++e) dlogits[e] += scores[e] * (d[e] - dot);
  }

  /// Gradient through the probabilities of the chosen experts.
  void add_probs(const T* logits, const std::int32_t* experts, const T* dprobs, T* dlogits) const {
    const std::int64_t k = rule.topk;
    const auto each = [&](auto&& use) {
      for (std::int64_t i = 0; i < k; ++i) {
        // A dropped choice keeps its share of the normalization: its code is −1 − expert.
        const std::int32_t e = experts[i] < 0 ? -1 - experts[i] : experts[i];
        use(e, experts[i] < 0 ? T(0) : dprobs[i] * T(rule.scaling_factor));
      }
    };
    if (rule.score == RouterScore::softmax) {
      T most = -std::numeric_limits<T>::infinity(), sum = 0, dot = 0;
      if (!rule.pre_softmax) {
        each([&](std::int32_t e, T) { most = std::max(most, logits[e]); });
        each([&](std::int32_t e, T) { sum += std::exp(logits[e] - most); });
      }
      const auto prob = [&](std::int32_t e) {
        return rule.pre_softmax ? scores[e] : std::exp(logits[e] - most) / sum;
      };
      each([&](std::int32_t e, T d) { dot += d * prob(e); });
      if (rule.pre_softmax) {
        for (std::size_t e = 0; e < scores.size(); ++e) dlogits[e] -= scores[e] * dot;
        each([&](std::int32_t e, T d) { dlogits[e] += scores[e] * d; });
      } else {
        each([&](std::int32_t e, T d) { dlogits[e] += prob(e) * (d - dot); });
      }
      return;
    }
    T sum = rule.normalizes() ? T(kSumEpsilon) : T(1), dot = 0;
    if (rule.normalizes()) {
      each([&](std::int32_t e, T) { sum += scores[e]; });
      each([&](std::int32_t e, T d) { dot += d * scores[e] / sum; });
    }
    each([&](std::int32_t e, T d) {
      dlogits[e] += (d - dot) / sum * own_slope(rule.score, logits[e], scores[e]);
    });
  }

  /// Gradient through the normalized scores of all experts.
  void add_scores(const T* logits, const T* dscores, T* dlogits) {
    if (rule.score == RouterScore::softmax) return add_softmax(dscores, dlogits);
    const T sum = std::accumulate(scores.begin(), scores.end(), T(0)) + T(kSumEpsilon);
    T dot = 0;
    for (std::size_t e = 0; e < scores.size(); ++e) dot += dscores[e] * scores[e] / sum;
    for (std::size_t e = 0; e < scores.size(); ++e)
      dlogits[e] += (dscores[e] - dot) / sum * own_slope(rule.score, logits[e], scores[e]);
  }

  RoutingRule rule;
  std::vector<T> scores;
};

}  // namespace

template <class T>
void route(const RoutingArguments<T>& a, std::int64_t begin, std::int64_t end) {
  TokenRouting<T> router(a.rule);
  const std::int64_t experts = a.rule.num_experts, k = a.rule.topk;
  for (std::int64_t t = begin; t < end; ++t) {
    const T* logits = a.logits + t * experts;
    router.rank(logits, a.bias, a.choice != nullptr ? a.choice + t * experts : nullptr);
    router.choose();
    std::copy(router.chosen.begin(), router.chosen.end(), a.experts + t * k);
    router.write_probs(logits, a.probs + t * k);
    if (a.scores != nullptr) router.write_scores(logits, a.scores + t * experts);
  }
}

template <class T>
void route_backward(const RoutingBackwardArguments<T>& a, std::int64_t begin, std::int64_t end) {
  TokenRoutingGradient<T> gradient(a.rule);
  const std::int64_t experts = a.rule.num_experts, k = a.rule.topk;
  const bool needs_softmax =
      a.rule.score == RouterScore::softmax && (a.rule.pre_softmax || a.dscores != nullptr);
  for (std::int64_t t = begin; t < end; ++t) {
    const T* logits = a.logits + t * experts;
    T* dlogits = a.dlogits + t * experts;
    std::fill_n(dlogits, experts, T(0));
    if (needs_softmax) {
      softmax(logits, experts, gradient.scores.data());
    } else if (a.rule.score != RouterScore::softmax) {
      for (std::int64_t e = 0; e < experts; ++e)
        gradient.scores[e] = own_score(a.rule.score, logits[e]);
    }
    gradient.add_probs(logits, a.experts + t * k, a.dprobs + t * k, dlogits);
    if (a.dscores != nullptr)
      gradient.add_scores(logits, a.dscores + t % a.period * experts, dlogits);
    if (a.dlse2 == 0) continue;
    const T lse = log_sum_exp(logits, experts);
    for (std::int64_t e = 0; e < experts; ++e)
      dlogits[e] += T(a.dlse2) * 2 * lse * std::exp(logits[e] - lse);
  }
}

template void route(const RoutingArguments<float>&, std::int64_t, std::int64_t);
template void route(const RoutingArguments<double>&, std::int64_t, std::int64_t);
template void route_backward(const RoutingBackwardArguments<float>&, std::int64_t, std::int64_t);
template void route_backward(const RoutingBackwardArguments<double>&, std::int64_t, std::int64_t);

}  // namespace megatron::kernels
