#include "megatron/nn/head.h"

#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {

at::Tensor Head::logits(const at::Tensor& /*hidden_sbh*/) const {
  throw InternalError("the first head of this model has no logits");
}

StepOutput sum_of_heads(std::span<const Head* const> heads, const at::Tensor& hidden_sbh,
                        const Microbatch& microbatch, const ForwardContext& context,
                        const LossGradient& gradient) {
  const auto divisor = [&](const Head* head) {
    return head->count(microbatch).to(at::kDouble).clamp_min(1);
  };
  StepOutput sum = heads.front()->loss(hidden_sbh, microbatch, context, gradient);
  for (const Head* head : heads.subspan(1)) {
    const StepOutput one = head->loss(hidden_sbh, microbatch, context, {});
    const at::Tensor weighted = one.root * (divisor(heads.front()) / divisor(head));
    sum.root = sum.root + weighted.to(sum.root.scalar_type());
    sum.terms.insert(sum.terms.end(), one.terms.begin(), one.terms.end());
  }
  return sum;
}

StepOutput Objective::apply(StepOutput heads, const Microbatch& microbatch) const {
  at::Tensor token_losses = heads.token_losses;
  StepOutput output = loss ? loss(heads, microbatch) : std::move(heads);
  if (!output.token_losses.defined()) output.token_losses = std::move(token_losses);
  MEGATRON_CHECK(std::ranges::equal(output.terms, names, {}, &LossTerm::name), "the ",
                 output.terms.size(), " terms of the loss are not those of the objective");
  return output;
}

}  // namespace megatron
