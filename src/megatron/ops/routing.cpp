#include "megatron/ops/routing.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <limits>
#include <tuple>

#include "megatron/base/error.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/host_scalar.h"
#include "megatron/ops/operator.h"
#include "megatron/ops/parallel_kernel.h"

namespace megatron {
namespace {

using kernels::RouterScore;

template <class T>
const T* data_or_null(const at::Tensor& tensor) {
  return tensor.defined() ? tensor.const_data_ptr<T>() : nullptr;
}

/// Returns `rows` for a kernel that computes in `type`. They may be undefined.
at::Tensor as_input(const at::Tensor& rows, c10::ScalarType type) {
  return rows.defined() ? rows.to(type).contiguous() : rows;
}

/// Calls use(T{}) for float or double.
template <class Use>
void with_float_type(const at::Tensor& logits, const Use& use) {
  if (logits.scalar_type() == at::kDouble) return use(double{});
  MEGATRON_CHECK(logits.scalar_type() == at::kFloat, "router logits in ",
                 c10::toString(logits.scalar_type()));
  use(float{});
}

// ---- CPU ----

constexpr std::int64_t kElementsPerLogit = 32;  // the work of one, for the size of a thread's part

RoutedTokens route_on_cpu(const at::Tensor& logits, const RoutingRule& rule,
                          const RouteOptions& options) {
  const std::int64_t tokens = logits.size(0);
  const at::Tensor x = logits.contiguous(), ranking = as_input(options.choice, x.scalar_type());
  at::Tensor experts = at::empty({tokens, rule.topk}, x.options().dtype(at::kInt)),
             probs = at::empty({tokens, rule.topk}, x.options()),
             scores = options.with_scores ? at::empty_like(x) : at::Tensor();
  with_float_type(x, [&]<class T>(T) {
    parallel_kernel(kernels::route<T>,
                    kernels::RoutingArguments<T>{
                        .rule = rule,
                        .logits = x.const_data_ptr<T>(),
                        .bias = data_or_null<float>(options.bias),
                        .choice = data_or_null<T>(ranking),
                        .experts = experts.mutable_data_ptr<std::int32_t>(),
                        .probs = probs.mutable_data_ptr<T>(),
                        .scores = options.with_scores ? scores.mutable_data_ptr<T>() : nullptr},
                    tokens, rule.num_experts * kElementsPerLogit);
  });
  return {experts, probs, scores};
}

at::Tensor backward_on_cpu(const at::Tensor& dprobs, const at::Tensor& logits,
                           const at::Tensor& experts, const RoutingRule& rule,
                           const RouterLossGradients& losses) {
  const at::Tensor x = logits.contiguous(), dy = as_input(dprobs, x.scalar_type()),
                   chosen = experts.contiguous(), rows = as_input(losses.dscores, x.scalar_type());
  at::Tensor dx = at::empty_like(x);
  with_float_type(x, [&]<class T>(T) {
    parallel_kernel(kernels::route_backward<T>,
                    kernels::RoutingBackwardArguments<T>{
                        .rule = rule,
                        .logits = x.const_data_ptr<T>(),
                        .experts = chosen.const_data_ptr<std::int32_t>(),
                        .dprobs = dy.const_data_ptr<T>(),
                        .dscores = data_or_null<T>(rows),
                        .period = rows.defined() ? rows.size(0) : 1,
                        .dlse2 = losses.dlse2.defined() ? host_scalar(losses.dlse2) : 0,
                        .dlogits = dx.mutable_data_ptr<T>()},
                    x.size(0), rule.num_experts * kElementsPerLogit);
  });
  return dx;
}

// ---- any device ----

/// Returns the scores of all experts by themselves.
at::Tensor scores_of(const at::Tensor& logits, const RoutingRule& rule) {
  switch (rule.score) {
    case RouterScore::softmax:
      return rule.pre_softmax ? at::softmax(logits, -1) : logits;
    case RouterScore::sigmoid:
      return at::sigmoid(logits);
    case RouterScore::sqrtsoftplus:
      return at::softplus(logits).sqrt();
  }
  throw InternalError("a router without a score function");
}

at::Tensor normalized(const at::Tensor& scores) { return scores / (scores.sum(-1, true) + 1e-20); }

at::Tensor scores_of_all(const at::Tensor& logits, const RoutingRule& rule) {
  return rule.score == RouterScore::softmax ? at::softmax(logits, -1)
                                            : normalized(scores_of(logits, rule));
}

at::Tensor probs_of(const at::Tensor& logits, const at::Tensor& chosen, const RoutingRule& rule) {
  at::Tensor probs = scores_of(logits, rule).gather(-1, chosen);
  if (rule.normalizes())
    probs = rule.score == RouterScore::softmax ? at::softmax(probs, -1) : normalized(probs);
  return probs * rule.scaling_factor;
}

/// Returns the indices of the `count` largest of each row, the lower index first of equal ones.
at::Tensor largest(const at::Tensor& scores, std::int64_t count) {
  return std::get<1>(at::sort(scores, /*stable=*/true, -1, /*descending=*/true))
      .narrow(-1, 0, count);
}

at::Tensor within_groups(const at::Tensor& ranking, const RoutingRule& rule) {
  const std::int64_t size = rule.num_experts / rule.num_groups;
  const at::Tensor grouped = ranking.view({-1, rule.num_groups, size}),
                   best = largest(grouped, rule.num_scored()),
                   chosen = largest(grouped.gather(-1, best).sum(-1), rule.group_topk);
  const at::Tensor is_chosen =
      at::zeros_like(grouped.select(-1, 0), grouped.options().dtype(at::kBool))
          .scatter_(-1, chosen, true);
  return grouped
      .masked_fill(is_chosen.logical_not().unsqueeze(-1), -std::numeric_limits<double>::infinity())
      .view_as(ranking);
}

RoutedTokens route_by_formula(const at::Tensor& logits, const RoutingRule& rule,
                              const RouteOptions& options) {
  const auto& [bias, choice, with_scores] = options;
  const bool is_softmax = rule.score == RouterScore::softmax;
  at::Tensor scores =
      bias.defined() && is_softmax ? at::softmax(logits, -1) : scores_of(logits, rule);
  if (bias.defined()) scores = scores + bias.to(scores.scalar_type());
  at::Tensor ranking = choice.defined() ? choice.to(scores.scalar_type()) : scores;
  const double lowest = ranking.scalar_type() == at::kDouble ? std::numeric_limits<double>::lowest()
                                                             : std::numeric_limits<float>::lowest();
  ranking = ranking.masked_fill(at::isnan(ranking), lowest)
                .masked_fill(at::isnan(scores), std::numeric_limits<double>::infinity());
  if (rule.group_topk < rule.num_groups) ranking = within_groups(ranking, rule);
  const at::Tensor chosen = std::get<0>(at::sort(largest(ranking, rule.topk), -1));
  return {chosen.to(at::kInt), probs_of(logits, chosen, rule),
          with_scores ? scores_of_all(logits, rule) : at::Tensor()};
}

at::Tensor backward_by_formula(const at::Tensor& dprobs, const at::Tensor& logits,
                               const at::Tensor& experts, const RoutingRule& rule,
                               const RouterLossGradients& losses) {
  const auto& [dscores, dlse2] = losses;
  const at::AutoGradMode with_graph(true);
  const at::Tensor x = logits.detach().requires_grad_(), is_dropped = experts < 0,
                   chosen = at::where(is_dropped, -1 - experts, experts).to(at::kLong);
  at::Tensor loss =
      (probs_of(x, chosen, rule) * dprobs.to(x.scalar_type()).masked_fill(is_dropped, 0)).sum();
  if (dscores.defined()) {
    const at::Tensor rows =
        at::arange(x.size(0), experts.options().dtype(at::kLong)).remainder(dscores.size(0));
    loss =
        loss + (scores_of_all(x, rule) * dscores.to(x.scalar_type()).index_select(0, rows)).sum();
  }
  if (dlse2.defined())
    loss = loss + at::logsumexp(x, -1).square().sum() * dlse2.to(x.scalar_type());
  return gradient_of(loss, x, at::ones_like(loss));
}

// ---- meta device ----

RoutedTokens route_on_meta(const at::Tensor& logits, const RoutingRule& rule,
                           const RouteOptions& options) {
  const std::int64_t tokens = logits.size(0);
  return {at::empty({tokens, rule.topk}, logits.options().dtype(at::kInt)),
          at::empty({tokens, rule.topk}, logits.options()),
          options.with_scores ? at::empty_like(logits) : at::Tensor()};
}

at::Tensor backward_on_meta(const at::Tensor& /*dprobs*/, const at::Tensor& logits,
                            const at::Tensor& /*experts*/, const RoutingRule& /*rule*/,
                            const RouterLossGradients& /*losses*/) {
  return at::empty_like(logits);
}

TORCH_LIBRARY_FRAGMENT(megatron, library) {
  define_operator<route_on_cpu>(library, "route");
  register_kernel<route_by_formula>(library, "route", kAnyDevice);
  register_kernel<route_on_meta>(library, "route", kMetaDevice);
  define_operator<backward_on_cpu>(library, "route_backward");
  register_kernel<backward_by_formula>(library, "route_backward", kAnyDevice);
  register_kernel<backward_on_meta>(library, "route_backward", kMetaDevice);
}

}  // namespace

RoutedTokens route(const at::Tensor& logits, const RoutingRule& rule, const RouteOptions& options) {
  static const Operator<route_on_cpu> op("megatron::route");
  MEGATRON_CHECK(logits.dim() == 2 && logits.size(1) == rule.num_experts, "logits of shape ",
                 logits.sizes(), " for ", rule.num_experts, " experts");
  MEGATRON_CHECK(rule.topk <= rule.group_topk * (rule.num_experts / rule.num_groups),
                 "a choice of ", rule.topk, " experts in ", rule.group_topk, " of ",
                 rule.num_groups, " groups of ", rule.num_experts, " experts");
  return op(logits, rule, options);
}

at::Tensor route_backward(const at::Tensor& dprobs, const at::Tensor& logits,
                          const at::Tensor& experts, const RoutingRule& rule,
                          const RouterLossGradients& losses) {
  static const Operator<backward_on_cpu> op("megatron::route_backward");
  return op(dprobs, logits, experts, rule, losses);
}

}  // namespace megatron
