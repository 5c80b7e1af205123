// T tokens, h hidden channels, E experts, k experts for each token.
#include "megatron/nn/moe/router.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sign.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "megatron/base/error.h"
#include "megatron/base/philox.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/column_sums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/dropout.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/matmul.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

kernels::RouterScore kernel_score(RouterScore score) {
  switch (score) {
    case RouterScore::softmax:
      return kernels::RouterScore::softmax;
    case RouterScore::sigmoid:
      return kernels::RouterScore::sigmoid;
    case RouterScore::sqrtsoftplus:
      return kernels::RouterScore::sqrtsoftplus;
  }
  throw InternalError("a router without a score function");
}

bool uses_sinkhorn(const MoeConfig& config) {
  return config.router_load_balancing_type == std::vector{LoadBalancing::sinkhorn};
}

RoutingRule rule_of(const MoeConfig& config) {
  const bool limits_groups = config.router_group_topk.value_or(0) > 0;
  RoutingRule rule{.num_experts = config.num_experts,
                   .topk = config.router_topk,
                   .score = kernel_score(config.router_score_function),
                   .pre_softmax = config.router_pre_softmax,
                   .scaling_factor = config.router_topk_scaling_factor.value_or(1),
                   .num_groups = limits_groups ? config.router_num_groups.value_or(1) : 1,
                   .group_topk = limits_groups ? *config.router_group_topk : 1,
                   .group_score_topk = config.router_group_score_topk};
  if (uses_sinkhorn(config)) {
    // Its probabilities are the scores among all experts.
    rule.score =
        config.router_topk == 1 ? kernels::RouterScore::sigmoid : kernels::RouterScore::softmax;
    rule.pre_softmax = true;
    rule.scaling_factor = 1;
    rule.num_groups = rule.group_topk = 1;
  }
  return rule;
}

/// Returns whether the balancing losses count other choices than the router's own.
bool counts_other_choices(const RoutingRule& rule, const Parameter* expert_bias) {
  return expert_bias != nullptr || rule.group_topk < rule.num_groups;
}

bool has_balancing_loss(const MoeConfig& config) {
  return config.coefficient(LoadBalancing::aux_loss) != 0 ||
         config.coefficient(LoadBalancing::seq_aux_loss) != 0 ||
         config.coefficient(LoadBalancing::global_aux_loss) != 0;
}

/// Returns the sum of the tokens' entropies, Σ −p·ln p of the normalized scores.
at::Tensor entropy_sum(const at::Tensor& scores) {
  const at::Tensor p = scores.to(at::kDouble);
  return (p * p.clamp_min(1e-300).log()).sum().neg();
}

/// Returns whether a pass counts what the router does and has auxiliary losses.
bool has_aux_losses(const ForwardContext& context) {
  return context.training && context.aux_loss_gradient.defined();
}

/// Returns the choices, with those of padding dropped.
at::Tensor drop_padding(const at::Tensor& experts, const RoutingSpan& span) {
  return span.padding.defined() ? at::where(span.padding, -1 - experts, experts) : experts;
}

Sharding replicated(Shape shape, const Rank& rank) {
  // Each rank of tp routes its own tokens and so has a part of the gradient. Those of the ranks of
  // cp are summed as all gradients are.
  return Sharding::replicated(std::move(shape), /*sums_gradients=*/rank.tp.size > 1);
}

}  // namespace

Router::Router(Module* parent, const LayerArguments& arguments)
    : Module(parent, "router"),
      config_(arguments.config.moe),
      rank_(arguments.rank),
      rule_(rule_of(config_)),
      weight_(declare(
          "weight",
          input_weight_spec(arguments.config,
                            replicated({config_.num_experts, arguments.config.hidden_size}, rank_)),
          rank_.tp)) {
  statistics_.layer = arguments.layer_index;
  if (arguments.config.add_bias_linear)
    bias_ = &declare("bias", bias_spec(replicated({config_.num_experts}, rank_)), rank_.tp);
  if (config_.router_enable_expert_bias)
    expert_bias_ = &declare("expert_bias",
                            {.sharding = Sharding::replicated({config_.num_experts}),
                             .init = Init::zeros(),
                             .tags = {},
                             .kind = ParameterKind::state,
                             .dtype = at::kFloat},
                            rank_.tp);
}

void Router::begin_step() {
  statistics_.sums = at::Tensor();
  global_counts_ = at::Tensor();
}

void Router::update_expert_bias(const at::Tensor& load) {
  if (expert_bias_ == nullptr) return;
  at::Tensor bias = expert_bias_->value();
  bias.add_(at::sign(load.mean() - load).to(bias), config_.router_bias_update_rate);
}

at::Tensor Router::jitter(const at::Tensor& x, const RoutingSpan& span,
                          const ForwardContext& context) const {
  const double epsilon = config_.input_jitter_eps.value_or(0);
  if (!context.training || epsilon == 0) return x;
  const at::Tensor u = coordinate_uniforms({span.num_positions, span.batch, x.size(1)},
                                           philox_key(context.seed, path() + ".input_jitter"),
                                           context.sample_ordinals, span.positions);
  return x * (u.view(x.sizes()) * (2 * epsilon) + (1 - epsilon)).to(x.scalar_type());
}

at::Tensor Router::logits(const at::Tensor& x) const {
  const c10::ScalarType type = config_.router_dtype == RouterDtype::fp64
                                   ? at::kDouble
                                   : compute_type(weight_.value().scalar_type());
  const at::Tensor w = weight_.value().t();
  at::Tensor y = type == at::kDouble ? matmul(x.to(type), w.to(type), type) : matmul(x, w, type);
  if (bias_ != nullptr) y.add_(bias_->value().to(type));
  return y;
}

at::Tensor Router::gate_backward(const at::Tensor& dlogits, const at::Tensor& x) const {
  const c10::ScalarType type = dlogits.scalar_type();
  if (bias_ != nullptr)
    bias_->contribute([sums = column_sums(dlogits)](at::Tensor& grad, bool fresh) {
      const at::Tensor sum = sums.to(grad.scalar_type());
      fresh ? grad.copy_(sum) : grad.add_(sum);
    });
  weight_.contribute([dlogits, x](at::Tensor& grad, bool fresh) {
    const at::Tensor rows = x.to(dlogits.scalar_type());
    if (grad.scalar_type() == dlogits.scalar_type())
      return matmul_out(grad, dlogits.t(), rows, /*accumulate=*/!fresh);
    const at::Tensor sum = matmul(dlogits.t(), rows, dlogits.scalar_type()).to(grad.scalar_type());
    fresh ? grad.copy_(sum) : grad.add_(sum);
  });
  return matmul(dlogits, weight_.value().to(type), type).to(x.scalar_type());
}

at::Tensor Router::random_logits(const at::Tensor& like, const RoutingSpan& span,
                                 const ForwardContext& context) const {
  if (!context.sample_ordinals.defined()) return like;  // generation routes by the weights
  return coordinate_uniforms({span.num_positions, span.batch, config_.num_experts},
                             philox_key(context.seed, path() + ".random_logits"),
                             context.sample_ordinals, span.positions)
      .view(like.sizes())
      .to(like.scalar_type());
}

RoutedTokens Router::choose(const at::Tensor& logits, const RoutingSpan& span,
                            const ForwardContext& context) const {
  RouteOptions options{.with_scores = has_aux_losses(context)};
  if (expert_bias_ != nullptr) options.bias = expert_bias_->value();
  if (uses_sinkhorn(config_) && context.training)
    options.choice = sinkhorn_scores({config_, rank_, span}, logits);
  RoutedTokens routed = route(logits, rule_, options);
  routed.experts = drop_padding(routed.experts, span);
  routed.probs = span.without_padding(routed.probs);
  if (options.with_scores) routed.scores = span.without_padding(routed.scores);
  return routed;
}

Router::Decision Router::decide(const at::Tensor& logits, const RoutingSpan& span,
                                const ForwardContext& context) {
  const bool trains = has_aux_losses(context);
  // A second run sees the counts of the first and leaves those of later microbatches alone.
  at::Tensor global_counts = context.first_seen(global_counts_);
  const BalancingInput input{config_, rank_, span};
  Decision decision{.routed = choose(logits, span, context), .losses = {}};
  RouterLosses losses;
  if (trains) {
    at::Tensor counted = decision.routed.experts;
    if (has_balancing_loss(config_) && counts_other_choices(rule_, expert_bias_)) {
      RoutingRule plain = rule_;
      plain.num_groups = plain.group_topk = 1;
      counted = drop_padding(route(logits, plain, {}).experts, span);
    }
    losses = router_losses(input,
                           {.logits = logits,
                            .routed = decision.routed,
                            .counted = counted,
                            .scale = context.aux_loss_gradient},
                           global_counts);
    decision.losses = losses.gradients;
  }
  if (config_.expert_capacity_factor) drop_beyond_capacity(input, decision.routed);
  if (trains && !context.is_second_run()) {
    global_counts_ = global_counts;
    const at::Tensor load =
        count_choices(decision.routed.experts, config_.num_experts, {}).view({-1});
    at::Tensor tokens = load.new_full({}, static_cast<double>(span.num_tokens()));
    if (span.padding.defined()) tokens = tokens - span.padding.sum();
    const at::Tensor dropped = tokens * config_.router_topk - load.sum(),
                     entropy = entropy_sum(decision.routed.scores),
                     sums = at::cat({load, at::stack({dropped, entropy, tokens}), losses.values});
    statistics_.sums = statistics_.sums.defined() ? statistics_.sums + sums : sums;
  }
  return decision;
}

RoutedTokens Router::forward(const at::Tensor& input, const RoutingSpan& span,
                             const ForwardContext& context) {
  const at::Tensor rows = jitter(input, span, context);
  Recording recording(
      {.name = "RouterBackward", .trains_parameters = any_trained({&weight_, bias_})}, {rows});
  at::Tensor logits = this->logits(rows);
  if (config_.router_force_load_balancing) logits = random_logits(logits, span, context);
  observe(context, *this, "", logits.view({-1, span.batch, config_.num_experts}));
  const auto [routed, losses] = decide(logits, span, context);
  const at::Tensor probs = recording.finish(
      routed.probs, {rows, logits, routed.experts, losses.dscores, losses.dlse2, span.padding},
      [this](BackwardPass& pass) -> Tensors {
        at::Tensor dlogits = route_backward(pass.gradients[0], pass.saved[1], pass.saved[2], rule_,
                                            {.dscores = pass.saved[3], .dlse2 = pass.saved[4]});
        if (pass.saved[5].defined()) dlogits.masked_fill_(pass.saved[5], 0);
        return {gate_backward(dlogits, pass.saved[0])};
      });
  return {.experts = routed.experts, .probs = probs, .scores = {}};
}

}  // namespace megatron
