// The choice of experts against its definition, and its gradient against autograd of the formulas.
#include "megatron/ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/topk.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_enums.h"
#include "support/gradient_check.h"

namespace megatron {
namespace {

using kernels::RouterScore;

RoutingRule rule_of(RouterScore score, bool pre_softmax, std::int64_t groups = 1,
                    std::int64_t group_topk = 1) {
  return {.num_experts = 8,
          .topk = 4,
          .score = score,
          .pre_softmax = pre_softmax,
          .scaling_factor = 2.5,
          .num_groups = groups,
          .group_topk = group_topk};
}

const std::vector<RoutingRule>& rules() {
  static const std::vector<RoutingRule> all = {
      rule_of(RouterScore::softmax, false),         rule_of(RouterScore::softmax, true),
      rule_of(RouterScore::sigmoid, false),         rule_of(RouterScore::sqrtsoftplus, false),
      rule_of(RouterScore::softmax, true, 4, 2),    rule_of(RouterScore::sigmoid, false, 4, 2),
      {8, 1, RouterScore::sigmoid, false, 1, 1, 1}, {8, 1, RouterScore::softmax, true, 1, 1, 1},
      {8, 8, RouterScore::softmax, false, 1, 1, 1}};
  return all;
}

std::string name_of(const RoutingRule& rule) {
  return "score " + std::to_string(static_cast<int>(rule.score)) + " k " +
         std::to_string(rule.topk) + (rule.pre_softmax ? " pre-softmax" : "") + " groups " +
         std::to_string(rule.num_groups);
}

at::Tensor scores_of(const at::Tensor& logits, const RoutingRule& rule) {
  if (rule.score == RouterScore::sigmoid) return at::sigmoid(logits);
  if (rule.score == RouterScore::sqrtsoftplus) return at::softplus(logits).sqrt();
  return rule.pre_softmax ? at::softmax(logits, -1) : logits;
}

/// Returns the definition of the probabilities of the chosen experts.
at::Tensor probs_of(const at::Tensor& logits, const at::Tensor& chosen, const RoutingRule& rule) {
  const at::Tensor scores = scores_of(logits, rule).gather(-1, chosen);
  if (rule.score == RouterScore::softmax)
    return (rule.pre_softmax ? scores : at::softmax(scores, -1)) * rule.scaling_factor;
  return (rule.topk == 1 ? scores : scores / scores.sum(-1, true)) * rule.scaling_factor;
}

at::Tensor normalized_scores(const at::Tensor& logits, const RoutingRule& rule) {
  if (rule.score == RouterScore::softmax) return at::softmax(logits, -1);
  const at::Tensor scores = scores_of(logits, rule);
  return scores / scores.sum(-1, true);
}

/// Returns whether expert `e` of a row is chosen, by counting those that rank before it.
bool is_chosen(const at::Tensor& ranking, std::int64_t e, const RoutingRule& rule) {
  const double* score = ranking.const_data_ptr<double>();
  const std::int64_t size = rule.num_experts / rule.num_groups;
  std::vector<double> groups;
  for (std::int64_t g = 0; g < rule.num_groups; ++g) {
    std::vector<double> members(score + g * size, score + (g + 1) * size);
    std::sort(members.begin(), members.end(), std::greater());
    groups.push_back(0);
    for (std::int64_t i = 0; i < std::min(size, rule.topk / rule.group_topk); ++i)
      groups.back() += members[static_cast<std::size_t>(i)];
  }
  const auto is_allowed = [&](std::int64_t expert) {
    const auto own = static_cast<std::size_t>(expert / size);
    std::int64_t before = 0;
    for (std::size_t g = 0; g < groups.size(); ++g)
      before += groups[g] > groups[own] || (groups[g] == groups[own] && g < own);
    return before < rule.group_topk;
  };
  if (!is_allowed(e)) return false;
  std::int64_t before = 0;
  for (std::int64_t other = 0; other < rule.num_experts; ++other)
    before +=
        is_allowed(other) && (score[other] > score[e] || (score[other] == score[e] && other < e));
  return before < rule.topk;
}

TEST(Routing, ChoosesTheBestExperts) {
  const at::Tensor logits = random_input({40, 8}, 2).detach();
  const at::Tensor tied = (logits * 2).round();  // many equal scores
  for (const RoutingRule& rule : rules()) {
    for (const at::Tensor& x : {logits, tied}) {
      SCOPED_TRACE(name_of(rule));
      const RoutedTokens routed = route(x, rule, {.with_scores = true});
      const at::Tensor ranking = scores_of(x, rule).contiguous();
      for (std::int64_t t = 0; t < x.size(0); ++t) {
        std::vector<int> expected;
        for (int e = 0; e < 8; ++e)
          if (is_chosen(ranking[t], e, rule)) expected.push_back(e);
        const auto* experts = routed.experts[t].const_data_ptr<std::int32_t>();
        EXPECT_EQ(std::vector<int>(experts, experts + rule.topk), expected) << "token " << t;
      }
      EXPECT_LE(difference(routed.probs, probs_of(x, routed.experts.to(at::kLong), rule)), 1e-14);
      EXPECT_LE(difference(routed.scores, normalized_scores(x, rule)), 1e-14);
    }
  }
}

TEST(Routing, ABiasDecidesTheChoiceAlone) {
  const at::Tensor logits = random_input({10, 8}).detach();
  const at::Tensor bias = at::tensor({0., 0., 9., 0., 0., 9., 9., 9.}).to(at::kFloat);
  const at::Tensor expected =
      at::tensor({2, 5, 6, 7}, at::TensorOptions().dtype(at::kInt)).expand({10, 4});
  for (const RouterScore score : {RouterScore::sigmoid, RouterScore::softmax}) {
    const RoutingRule rule = rule_of(score, false);
    const RoutedTokens routed = route(logits, rule, {.bias = bias});
    EXPECT_TRUE(routed.experts.equal(expected));
    EXPECT_LE(difference(routed.probs, probs_of(logits, expected.to(at::kLong), rule)), 1e-14);
  }
}

/// The bias is added to probabilities, which are below 1, and not to logits.
TEST(Routing, ABiasCountsInTheScaleOfASoftmax) {
  const RoutingRule rule = rule_of(RouterScore::softmax, false);
  const at::Tensor logits = at::tensor({0., 1., 2., 3., 4., 5., 6., 7.}, at::kDouble).view({1, 8});
  const at::Tensor bias = at::tensor({1.5, 0., 0., 0., 0., 0., 0., 0.}).to(at::kFloat);
  EXPECT_TRUE(route(logits, rule, {.bias = bias})
                  .experts.equal(
                      at::tensor({0, 5, 6, 7}, at::TensorOptions().dtype(at::kInt)).view({1, 4})));
}

/// A NaN must reach the probabilities, whatever the other scores are, and must not repeat an expert
/// or leave one out. torch.topk chooses it first, too.
TEST(Routing, NanIsChosenFirst) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor logits = at::tensor({0., 1., nan, 3., 2., -1., 4., nan}).view({1, 8});
  for (RoutingRule rule : rules()) {
    if (rule.topk > 4) continue;
    SCOPED_TRACE(name_of(rule));
    for (const bool is_biased : {false, true}) {
      RouteOptions options;
      if (is_biased) options.bias = at::arange(8.0, at::kFloat);
      const RoutedTokens routed = route(logits, rule, options);
      EXPECT_TRUE(at::isnan(routed.probs).any().item<bool>());
      const at::Tensor distinct = std::get<0>(at::_unique(routed.experts));
      EXPECT_EQ(distinct.numel(), rule.topk);
      EXPECT_TRUE(distinct.min().item<int>() >= 0 && distinct.max().item<int>() < 8);
    }
  }
  const RoutingRule plain = rule_of(RouterScore::softmax, false);
  const at::Tensor best = std::get<1>(at::topk(logits, plain.topk));
  EXPECT_TRUE(
      route(logits, plain, {}).experts.to(at::kLong).equal(std::get<0>(at::sort(best, -1))));
  EXPECT_TRUE(route(at::full({1, 8}, nan), rule_of(RouterScore::sigmoid, false), {})
                  .experts.equal(at::arange(4, at::TensorOptions().dtype(at::kInt)).view({1, 4})));
}

/// Sinkhorn's normalization spreads the NaN of one logit over all: its own expert is still chosen.
TEST(Routing, ANanInTheChoiceComesLast) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const RoutingRule rule{8, 1, RouterScore::sigmoid, true, 1, 1, 1};
  const at::Tensor logits = at::arange(8.0, at::kDouble).view({1, 8}).clone();
  at::Tensor choice = at::full({1, 8}, nan, at::kDouble);
  choice[0][5].fill_(-3);
  EXPECT_EQ(route(logits, rule, {.choice = choice}).experts.item<int>(), 5);
  logits[0][6].fill_(nan);
  choice.fill_(nan);
  const RoutedTokens routed = route(logits, rule, {.choice = choice});
  EXPECT_EQ(routed.experts.item<int>(), 6);
  EXPECT_TRUE(at::isnan(routed.probs).all().item<bool>());
}

TEST(Routing, GradientsEqualThoseOfTheFormulas) {
  for (const RoutingRule& rule : rules()) {
    for (const bool drops : {false, true}) {
      SCOPED_TRACE(name_of(rule) + (drops ? " with drops" : ""));
      const at::Tensor logits = random_input({12, 8}, 1.5);
      const RoutedTokens routed = route(logits.detach(), rule, {});
      const at::Tensor chosen = routed.experts.to(at::kLong),
                       dprobs = random_input({12, rule.topk}, 1, 3).detach(),
                       dscores = random_input({3, 8}, 1, 5).detach(),
                       dlse2 = at::tensor(0.3, at::kDouble);
      at::Tensor experts = routed.experts.clone(), kept = at::ones_like(dprobs);
      if (drops) {
        experts.select(1, 0).copy_(-1 - experts.select(1, 0));
        kept.select(1, 0).zero_();
      }
      const at::Tensor loss = (probs_of(logits, chosen, rule) * dprobs * kept).sum() +
                              (normalized_scores(logits, rule) * dscores.repeat({4, 1})).sum() +
                              0.3 * at::logsumexp(logits, -1).square().sum();
      loss.backward();
      EXPECT_LE(difference(route_backward(dprobs, logits.detach(), experts, rule,
                                          {.dscores = dscores, .dlse2 = dlse2}),
                           logits.grad()),
                1e-13);
    }
  }
}

/// The plain ATen operators that serve other devices agree with the kernels.
TEST(Routing, TheFallbackAgrees) {
  const auto dispatch = [](const char* name) {
    return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
  };
  using Routed = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  using Optional = std::optional<at::Tensor>;
  using Int = std::int64_t;
  const auto forward = dispatch("megatron::route")
                           .typed<Routed(const at::Tensor&, Int, Int, Int, bool, double, Int, Int,
                                         Int, const Optional&, const Optional&, bool)>();
  const auto backward =
      dispatch("megatron::route_backward")
          .typed<at::Tensor(const at::Tensor&, const at::Tensor&, const at::Tensor&, Int, Int, Int,
                            bool, double, Int, Int, Int, const Optional&, const Optional&)>();
  const c10::DispatchKeySet any(c10::DispatchKey::CompositeExplicitAutograd);
  for (const RoutingRule& rule : rules()) {
    SCOPED_TRACE(name_of(rule));
    const auto with_rule = [&](const auto& call) {
      return call(rule.num_experts, rule.topk, static_cast<Int>(rule.score), rule.pre_softmax,
                  rule.scaling_factor, rule.num_groups, rule.group_topk, rule.group_score_topk);
    };
    const auto chosen = [&](const at::Tensor& x, const Optional& added, const Optional& choice,
                            bool with_scores) {
      return with_rule([&](auto... members) {
        return forward.redispatch(any, x, members..., added, choice, with_scores);
      });
    };
    const at::Tensor logits = (random_input({20, 8}, 2).detach() * 2).round(),
                     bias = at::sin(at::arange(8.0)).to(at::kFloat),
                     dprobs = random_input({20, rule.topk}, 1, 2).detach(),
                     dscores = random_input({2, 8}, 1, 5).detach(),
                     dlse2 = at::tensor(0.7, at::kDouble);
    const RoutedTokens own = route(logits, rule, {.bias = bias, .with_scores = true});
    const Routed found = chosen(logits, bias, std::nullopt, /*with_scores=*/true);
    const auto& [experts, probs, scores] = found;
    EXPECT_TRUE(own.experts.equal(experts));
    at::Tensor with_nan = logits.clone(), choice = at::sin(logits);
    with_nan[3][2].fill_(std::nan(""));
    choice[3].fill_(std::nan(""));
    choice[4][1].fill_(std::nan(""));
    EXPECT_TRUE(route(with_nan, rule, {.choice = choice})
                    .experts.equal(std::get<0>(
                        chosen(with_nan, std::nullopt, choice, /*with_scores=*/false))));
    EXPECT_LE(difference(own.probs, probs), 1e-14);
    EXPECT_LE(difference(own.scores, scores), 1e-14);
    EXPECT_LE(difference(route_backward(dprobs, logits, experts, rule,
                                        {.dscores = dscores, .dlse2 = dlse2}),
                         with_rule([&](auto... members) {
                           return backward.redispatch(any, dprobs, logits, std::get<0>(found),
                                                      members..., dscores, dlse2);
                         })),
              1e-13);
  }
}

}  // namespace
}  // namespace megatron
