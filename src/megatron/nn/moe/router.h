// The router of a mixture-of-experts layer: a linear layer whose result decides which experts a
// token takes, and with which probabilities.
#pragma once

#include <ATen/core/Tensor.h>

#include "megatron/nn/forward_context.h"
#include "megatron/nn/layer_spec.h"
#include "megatron/nn/module.h"
#include "megatron/nn/moe/load_balancing.h"
#include "megatron/ops/routing.h"

namespace megatron {

/// The sums of one router over the microbatches of a step, on its own rank: float64
/// [experts + kNumSums], the load of each expert (choices that were not dropped) and then the sums
/// below. Summed over tp, dp and cp they are those of the whole batch.
struct RoutingStatistics {
  enum Sum : std::int64_t {
    dropped,
    entropy,
    tokens,
    aux_loss,
    seq_aux_loss,
    global_aux_loss,
    z_loss
  };
  static constexpr std::int64_t kNumSums = 7;

  std::int64_t layer = 0;  ///< 0-based index in the whole model
  at::Tensor sums;         ///< undefined before the first microbatch
};

/// Routes the tokens of a rank. All ranks hold the whole weight.
class Router : public Module {
 public:
  Router(Module* parent, const LayerArguments& arguments);

  /// Chooses experts for the tokens x [T, h] of `span`. The probabilities are differentiable, and
  /// backward also has the gradients of the auxiliary losses. In training, adds to statistics().
  /// Collective over tp-cp when the choice or a loss depends on the whole microbatch, and over dp
  /// with global_aux_loss.
  RoutedTokens forward(const at::Tensor& x, const RoutingSpan& span, const ForwardContext& context);

  RoutingStatistics& statistics() { return statistics_; }
  /// Forgets the statistics of the last step.
  void begin_step();
  /// Moves the expert bias by the load of a whole batch [E] (Wang et al. 2024: b += rate ·
  /// sign(mean − load)). Does nothing without a bias.
  void update_expert_bias(const at::Tensor& load);

 private:
  /// Multiplies each element by a random number from 1 − ε to 1 + ε.
  at::Tensor jitter(const at::Tensor& x, const RoutingSpan& span,
                    const ForwardContext& context) const;
  at::Tensor logits(const at::Tensor& x) const;
  at::Tensor random_logits(const at::Tensor& like, const RoutingSpan& span,
                           const ForwardContext& context) const;
  /// The choice and the gradients of the losses.
  struct Decision {
    RoutedTokens routed;
    RouterLossGradients losses;
  };
  Decision decide(const at::Tensor& logits, const RoutingSpan& span, const ForwardContext& context);
  RoutedTokens choose(const at::Tensor& logits, const RoutingSpan& span,
                      const ForwardContext& context) const;
  at::Tensor gate_backward(const at::Tensor& dlogits, const at::Tensor& x) const;

  const MoeConfig& config_;
  const Rank& rank_;
  const RoutingRule rule_;
  Parameter& weight_;
  Parameter* bias_ = nullptr;
  Parameter* expert_bias_ = nullptr;
  RoutingStatistics statistics_;
  at::Tensor global_counts_;  ///< of the step so far: router_losses()
};

}  // namespace megatron
