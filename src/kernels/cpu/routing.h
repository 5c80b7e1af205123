// Chooses the experts of each token and their probabilities, and the gradient of that. E experts, k
// of them for each token.
#pragma once

#include <cstdint>
#include <tuple>

namespace megatron::kernels {

enum class RouterScore : std::uint8_t { softmax, sigmoid, sqrtsoftplus };

/// How a router turns the logits of a token into experts and probabilities (Megatron Core's
/// topk_routing_with_score_function). Of equal scores the expert with the lower index is chosen.
struct RoutingRule {
  std::int64_t num_experts, topk;
  RouterScore score;
  /// softmax: over all experts, and the probabilities of the chosen ones are not normalized.
  bool pre_softmax;
  /// softmax over the chosen experts, or division by their sum (with sigmoid and sqrtsoftplus).
  bool normalizes() const { return score == RouterScore::softmax ? !pre_softmax : topk > 1; }
  double scaling_factor;  ///< multiplies the probabilities
  /// The experts are `num_groups` runs. A group's score is the sum of its `group_score_topk` best
  /// experts (0: topk / group_topk), and only experts of the group_topk best groups are chosen
  /// (DeepSeek-V3, section 2.1.2). 1 and 1: no limit.
  std::int64_t num_groups, group_topk, group_score_topk = 0;
  std::int64_t num_scored() const {
    return group_score_topk > 0 ? group_score_topk : topk / group_topk;
  }
  static auto members(auto& r) {
    return std::tie(r.num_experts, r.topk, r.score, r.pre_softmax, r.scaling_factor, r.num_groups,
                    r.group_topk, r.group_score_topk);
  }
};

/// Numbers are float or double.
template <class T>
struct RoutingArguments {
  RoutingRule rule;
  const T* logits;  ///< [tokens, E]
  /// [E], added to the scores for the choice alone: with softmax to those of all experts. May be
  /// null.
  const float* bias;
  const T* choice;        ///< [tokens, E]: scores that decide in place of the logits'; may be null
  std::int32_t* experts;  ///< [tokens, k], ascending
  T* probs;               ///< [tokens, k]
  T* scores;  ///< [tokens, E]: scores of all experts that sum to one (balancing losses); may be
              ///< null
};

/// The gradient of the logits from that of the probabilities, and from losses on the router itself.
template <class T>
struct RoutingBackwardArguments {
  RoutingRule rule;
  const T* logits;
  const std::int32_t* experts;  ///< −1: the choice has been dropped
  const T* dprobs;              ///< [tokens, k]
  /// [period, E]: gradient of the normalized scores of token t in row t mod period; may be null.
  const T* dscores;
  std::int64_t period;
  double dlse2;  ///< gradient of (log Σ exp logits)², equal for all tokens
  T* dlogits;    ///< [tokens, E]
};

/// Run on tokens [begin, end).
template <class T>
void route(const RoutingArguments<T>& arguments, std::int64_t begin, std::int64_t end);
template <class T>
void route_backward(const RoutingBackwardArguments<T>& arguments, std::int64_t begin,
                    std::int64_t end);

}  // namespace megatron::kernels
