// T tokens, E experts, k experts for each token, b samples.
#include "megatron/nn/moe/load_balancing.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/collectives.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

at::Tensor over_microbatch(const BalancingInput& input, at::Tensor sums) {
  all_reduce_(input.rank.tp_cp, sums, "router statistics");
  return sums;
}

/// Returns the sum of the scores [T, E] of each sample, [samples, E].
at::Tensor sum_scores(const at::Tensor& scores, const TokenSamples& samples) {
  const at::Tensor rows = scores.to(at::kDouble);
  if (!samples.of_token.defined()) return rows.view({-1, samples.count, rows.size(1)}).sum(0);
  return at::zeros({samples.count, rows.size(1)}, rows.options())
      .index_add_(0, samples.of_token, rows);
}

/// A loss Σ c·scores, with c = factor · counts.
struct BalanceTerm {
  at::Tensor weights;  ///< c [rows, E]
  at::Tensor value;    ///< scalar: this rank's part
};

/// Returns the weights [1 or samples, E] as rows of which token t has row t mod rows.
at::Tensor rows_of_tokens(const at::Tensor& weights, const TokenSamples& samples) {
  return samples.of_token.defined() && weights.size(0) > 1
             ? weights.index_select(0, samples.of_token)
             : weights;
}

BalanceTerm balance_term(const at::Tensor& counts, const at::Tensor& score_sums, double factor) {
  const at::Tensor weights = counts * factor;
  return {weights, (weights * score_sums).sum()};
}

/// Returns the tokens' rows [T, n] of `positions`, [positions · b, n].
at::Tensor select_positions(const at::Tensor& rows, const at::Tensor& positions,
                            std::int64_t batch) {
  const std::int64_t width = rows.size(1);
  return rows.reshape({-1, batch * width})
      .index_select(0, positions.to(rows.device()))
      .view({-1, width});
}

/// Returns the rows of all tokens of the microbatch, with positions in ascending order. Collective
/// over tp-cp.
at::Tensor all_rows(const BalancingInput& input, const at::Tensor& rows) {
  const auto& tokens = input.span.tokens_of_ranks;
  const Axis& ranks =
      std::ssize(tokens) == input.rank.tp_cp.size ? input.rank.tp_cp : input.rank.tp;
  if (ranks.size == 1) return rows;
  const at::Tensor by_rank = all_gather(ranks, rows.contiguous(), "router rows", tokens);
  return input.span.is_reordered()
             ? select_positions(by_rank, input.span.placement->row_of, input.span.batch)
             : by_rank;
}

/// Returns this rank's rows of all_rows().
at::Tensor own_rows(const BalancingInput& input, const at::Tensor& rows) {
  const RoutingSpan& span = input.span;
  return span.is_reordered() ? select_positions(rows, span.positions_of_rank(), span.batch)
                             : rows.narrow(0, span.first_token(), span.num_tokens());
}

}  // namespace

at::Tensor count_choices(const at::Tensor& experts, std::int64_t num_experts,
                         const TokenSamples& samples) {
  const at::Tensor chosen = at::where(experts < 0, -1 - experts, experts).to(at::kLong);
  const at::Tensor sample =
      samples.of_token.defined()
          ? samples.of_token
          : at::arange(experts.size(0), chosen.options()).remainder(samples.count);
  const at::Tensor row = sample.unsqueeze(1) * num_experts;
  return at::bincount((chosen + row).flatten(), (experts >= 0).to(at::kDouble).flatten(),
                      samples.count * num_experts)
      .to(at::kDouble)
      .view({samples.count, num_experts});
}

RouterLosses router_losses(const BalancingInput& input, const RouterLossArguments& arguments,
                           at::Tensor& global_counts) {
  const auto& [logits, routed, counted, scale] = arguments;
  const MoeConfig& config = input.config;
  const std::int64_t experts = config.num_experts;
  const double total = static_cast<double>(input.span.total()), tokens = std::max(total, 1.0),
               k = static_cast<double>(config.router_topk), e = static_cast<double>(experts);
  const double aux = config.coefficient(LoadBalancing::aux_loss),
               seq = config.coefficient(LoadBalancing::seq_aux_loss),
               global = config.coefficient(LoadBalancing::global_aux_loss),
               z = config.z_loss_coeff.value_or(0);
  const auto options = logits.options().dtype(at::kDouble);
  const at::Tensor zero = at::zeros({}, options);
  std::vector<at::Tensor> values(4, zero);
  RouterLosses losses;
  at::Tensor weights;  // Σ of the terms' weights, with their coefficients: [1 or b, E]
  const auto add = [&](const at::Tensor& more) {
    weights = weights.defined() ? weights + more : more;
  };
  if (aux != 0 || seq != 0 || global != 0) {
    const TokenSamples samples = seq != 0 ? input.span.samples() : TokenSamples{};
    const at::Tensor counts = over_microbatch(input, count_choices(counted, experts, samples));
    const at::Tensor score_sums = sum_scores(routed.scores, samples);
    const at::Tensor all_counts = counts.sum(0, true), all_scores = score_sums.sum(0, true);
    if (aux != 0) {
      const BalanceTerm term = balance_term(all_counts, all_scores, e / (k * tokens * tokens));
      values[0] = term.value;
      add(term.weights * aux);
    }
    if (seq != 0) {
      const at::Tensor lengths = at::tensor(input.span.lengths, options).clamp_min(1).unsqueeze(1);
      const BalanceTerm term = balance_term(counts / lengths, score_sums, e / (k * tokens));
      values[1] = term.value;
      add(term.weights * seq);
    }
    if (global != 0) {
      at::Tensor batch_counts =
          at::cat({all_counts.view({-1}), at::zeros({1}, options).add_(total)});
      all_reduce_(input.rank.dp, batch_counts, "router statistics of the batch");
      global_counts = global_counts.defined() ? global_counts + batch_counts : batch_counts;
      const at::Tensor shares =
          global_counts.narrow(0, 0, experts) / global_counts[experts].clamp_min(1);
      const BalanceTerm term = balance_term(shares.view({1, -1}), all_scores, e / (k * tokens));
      values[2] = term.value;
      add(term.weights * global);
    }
    losses.gradients.dscores = rows_of_tokens(weights, samples) * scale.to(options);
  }
  if (z != 0) {
    const at::Tensor lse = at::logsumexp(logits, -1, /*keepdim=*/true).to(at::kDouble);
    values[3] = input.span.without_padding(lse).square().sum() / tokens;
    losses.gradients.dlse2 = scale.to(options) * (z / tokens);
  }
  losses.values = at::stack(values);
  return losses;
}

at::Tensor sinkhorn_scores(const BalancingInput& input, const at::Tensor& logits) {
  constexpr double kTolerance = 1e-4, kEpsilon = 1e-8;
  // An expert whose logits are some units below the others' needs 10⁵ iterations.
  constexpr int kMostIterations = 1000;
  if (logits.is_meta()) return at::empty_like(logits);
  const at::Tensor own_cost = input.span.without_padding(logits.to(at::kFloat).exp()),
                   cost = all_rows(input, own_cost);
  const double tokens = static_cast<double>(std::max<std::int64_t>(input.span.total(), 1));
  at::Tensor d0 = at::ones({cost.size(0)}, cost.options()),
             d1 = at::ones({cost.size(1)}, cost.options()), last = d1;
  double error = 1e9;
  for (int i = 0; i < kMostIterations && error > kTolerance; ++i) {
    d0 = ((d1 * cost).sum(1) + kEpsilon).reciprocal() / tokens;
    d1 = ((d0.unsqueeze(1) * cost).sum(0) + kEpsilon).reciprocal() /
         static_cast<double>(cost.size(1));
    error = (last - d1).abs().mean().item<double>();  // NaN ends the loop
    last = d1;
  }
  return own_rows(input, d1 * cost * d0.unsqueeze(1));
}

std::int64_t expert_capacity(const MoeConfig& config, std::int64_t tokens) {
  const double mean =
      static_cast<double>(tokens * config.router_topk) / static_cast<double>(config.num_experts);
  return static_cast<std::int64_t>(std::ceil(mean * config.expert_capacity_factor.value_or(0)));
}

void drop_beyond_capacity(const BalancingInput& input, RoutedTokens& routed) {
  if (routed.experts.is_meta()) return;  // nothing is beyond an even load
  const auto capacity = static_cast<std::size_t>(expert_capacity(input.config, input.span.total()));
  const at::Tensor experts = all_rows(input, routed.experts).cpu().clone().contiguous(),
                   probs = all_rows(input, routed.probs).cpu().to(at::kDouble).contiguous();
  auto* expert = experts.mutable_data_ptr<std::int32_t>();
  const double* prob = probs.const_data_ptr<double>();
  std::vector<std::vector<std::int64_t>> choices(
      static_cast<std::size_t>(input.config.num_experts));
  for (std::int64_t i = 0; i < experts.numel(); ++i)
    if (expert[i] >= 0) choices[static_cast<std::size_t>(expert[i])].push_back(i);
  for (std::vector<std::int64_t>& of_expert : choices) {
    if (of_expert.size() <= capacity) continue;
    if (input.config.token_drop_policy == TokenDropPolicy::probs)
      std::ranges::stable_sort(of_expert, std::greater(), [&](std::int64_t choice) {
        return std::isnan(prob[choice]) ? HUGE_VAL : prob[choice];  // NaN must reach the loss
      });
    for (std::size_t i = capacity; i < of_expert.size(); ++i)
      expert[of_expert[i]] = -1 - expert[of_expert[i]];
  }
  routed.experts = own_rows(input, experts).to(routed.experts.device());
  routed.probs = routed.probs.masked_fill(routed.experts < 0, 0);
}

}  // namespace megatron
