// The choice of experts for each token (Shazeer et al. 2017; Fedus et al. 2021). T tokens, E
// experts, k experts for each token.
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "kernels/cpu/routing.h"

namespace megatron {

using kernels::RoutingRule;

/// The experts of each token.
struct RoutedTokens {
  at::Tensor experts;  ///< int32 [T, k], ascending; −1 − e where expert e was chosen and dropped
  at::Tensor probs;    ///< [T, k] in the dtype of the logits; 0 where dropped
  at::Tensor scores;   ///< [T, E]: scores of all experts that sum to one, if requested
  static auto members(auto& r) { return std::tie(r.experts, r.probs, r.scores); }
};

/// Optional arguments of route().
struct RouteOptions {
  at::Tensor bias = {};    ///< float32 [E], added to the scores for the choice alone
  at::Tensor choice = {};  ///< [T, E]: scores that decide in place of the logits'
  bool with_scores = false;
  static auto members(auto& o) { return std::tie(o.bias, o.choice, o.with_scores); }
};

/// Chooses experts by `logits` [T, E], float32 or float64. Equal scores are decided for the lower
/// index. A score that is NaN is chosen first, as by torch.topk, so that it reaches the loss; a NaN
/// in `choice` comes last. Not differentiable: route_backward() is the gradient.
RoutedTokens route(const at::Tensor& logits, const RoutingRule& rule, const RouteOptions& options);

/// Gradients of losses on the router itself.
struct RouterLossGradients {
  /// [n, E] in the dtype of the logits: gradient of RoutedTokens::scores of token t in row t mod n.
  /// May be undefined.
  at::Tensor dscores = {};
  at::Tensor dlse2 = {};  ///< scalar: gradient of each (log Σ exp logits)²; may be undefined
  static auto members(auto& losses) { return std::tie(losses.dscores, losses.dlse2); }
};

/// Returns the gradient of the logits from `dprobs` [T, k], that of RoutedTokens::probs.
at::Tensor route_backward(const at::Tensor& dprobs, const at::Tensor& logits,
                          const at::Tensor& experts, const RoutingRule& rule,
                          const RouterLossGradients& losses);

}  // namespace megatron
