// b samples, s positions, h hidden channels, v vocabulary.
#include "megatron/nn/head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/matmul.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {

at::Tensor Head::logits(const at::Tensor& /*hidden_sbh*/) const {
  throw InternalError("the first head of this model has no logits");
}

at::Tensor first_rows(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                      const ForwardContext& context, const Axis& tp) {
  const std::optional<PackedSequences>& packed = microbatch.packed;
  if (!packed) {
    const at::Tensor row_1bh = hidden_sbh.narrow(0, 0, 1);
    return (context.sequence_parallel  // the sequence begins on the first rank
                ? gather_replicated_sequence(row_1bh, tp.size, tp, "first rows")
                : row_1bh)
        .select(0, 0);
  }
  const at::Tensor rows = hidden_sbh.select(1, 0),
                   begins = at::tensor(packed->cu_seqlens, at::kLong)
                                .narrow(0, 0, packed->num_samples)
                                .to(rows.device()),
                   places = begins - context.first_row, own = places.clamp(0, rows.size(0) - 1);
  const at::Tensor found = at::index_select(rows, 0, own);
  if (!context.sequence_parallel) return found;
  return reduce_from_tensor_parallel_region(found.masked_fill(own.ne(places).unsqueeze(1), 0), tp,
                                            "first rows");
}

ParameterSpec output_weight_spec(const TransformerConfig& config, std::int64_t vocab_pad_multiple) {
  return {
      .sharding = Sharding::vocabulary({config.vocab_size, config.hidden_size}, vocab_pad_multiple),
      .init = input_init(config, {config.vocab_size, config.hidden_size}),
      .tags = {.embedding = true, .packing = WeightPacking::in_place}};
}

OutputHead::OutputHead(const TransformerConfig& config, const Rank& rank,
                       const OutputWeights& weights, bool may_lack_labels)
    : config_(config), rank_(rank), weights_(weights), may_lack_labels_(may_lack_labels) {
  weights_.softcap = config.final_logit_softcapping;
}

namespace {

/// Returns the positions with a label, one at least, if others are without; otherwise undefined.
/// Only a CPU can count them without a wait.
at::Tensor labelled_positions(const at::Tensor& labels) {
  if (!labels.is_cpu()) return {};
  const at::Tensor has_label = labels.ge(0);
  if (has_label.all().item<bool>()) return {};
  const at::Tensor positions = has_label.nonzero().flatten();
  return positions.numel() > 0 ? positions : at::zeros({1}, positions.options());
}

}  // namespace

at::Tensor OutputHead::scaled(const at::Tensor& hidden) const {
  return config_.logit_scale == 1 ? hidden : hidden * config_.logit_scale;
}

StepOutput OutputHead::loss(const at::Tensor& decoded_sbh, const Microbatch& microbatch,
                            const ForwardContext& context, const LossGradient& gradient) const {
  const at::Tensor &labels_bs = microbatch.at("labels"), &mask_bs = microbatch.at("loss_mask");
  // The GEMM with this rank's part of the vocabulary needs all positions.
  const at::Tensor hidden_sbh =
      context.sequence_parallel
          ? gather_from_sequence_parallel_region(decoded_sbh, rank_.tp, "output_layer")
          : copy_to_tensor_parallel_region(decoded_sbh, rank_.tp, "output_layer");
  at::Tensor hidden = scaled(hidden_sbh).reshape({-1, config_.hidden_size}),
             labels = labels_bs.t().reshape({-1}), mask = mask_bs.t().reshape({-1});
  const at::Tensor positions = may_lack_labels_ ? labelled_positions(labels) : at::Tensor();
  if (positions.defined())
    for (at::Tensor* rows : {&hidden, &labels, &mask})
      *rows = at::index_select(*rows, 0, positions);
  if (may_lack_labels_) labels = labels.clamp_min(0);
  TokenLoss loss = linear_cross_entropy(hidden, weights_, labels, mask, gradient);
  if (positions.defined())
    loss.token_losses = at::index_add(
        at::zeros({labels_bs.numel()}, loss.token_losses.options().requires_grad(false)), 0,
        positions, loss.token_losses);
  return StepOutput::of(kLanguageModelLoss, loss.loss_sum, mask_bs.sum(),
                        loss.token_losses.view({labels_bs.size(1), labels_bs.size(0)}).t());
}

at::Tensor OutputHead::logits(const at::Tensor& hidden_sbh) const {
  const auto rows = [this](const at::Tensor& all) {
    return rank_.tp.size == 1 ? all.narrow(0, 0, config_.vocab_size) : all;
  };
  GemmWeight weight = weights_.weight.gemm_weight();
  weight.value = rows(weight.value);
  at::Tensor mine = matmul(scaled(hidden_sbh).reshape({-1, config_.hidden_size}), weight,
                           compute_type(weight.value.scalar_type()));
  if (weights_.bias != nullptr) mine = mine + rows(weights_.bias->value());
  if (weights_.softcap > 0) mine = (mine / weights_.softcap).tanh_().mul_(weights_.softcap);
  const at::Tensor logits_sbv =
      gather_from_tensor_parallel_region(mine, rank_.tp, "logits").narrow(1, 0, config_.vocab_size);
  return logits_sbv.reshape({hidden_sbh.size(0), hidden_sbh.size(1), -1})
      .transpose(0, 1)
      .to(at::kFloat);
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
