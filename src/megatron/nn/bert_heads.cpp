#include "megatron/nn/bert_heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tanh.h>

#include <utility>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/linear.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {

Dense::Dense(Module* parent, std::string_view path, const TransformerConfig& config,
             const Rank& rank, std::int64_t out, bool sums_gradients)
    : Module(parent, path),
      weight(declare("weight",
                     input_weight_spec(
                         config, Sharding::replicated({out, config.hidden_size}, sums_gradients)),
                     rank.tp)),
      bias(declare("bias", bias_spec(Sharding::replicated({out}, sums_gradients)), rank.tp)) {}

MaskedLmHead::MaskedLmHead(Module* parent, const TransformerConfig& config, const Rank& rank,
                           Parameter& weight, std::int64_t vocab_pad_multiple)
    : dense_(parent, "lm_head.dense", config, rank, config.hidden_size, rank.sequence_parallel),
      layer_norm_(parent, "lm_head.layer_norm", config, config.hidden_size, rank),
      output_bias_(parent, "output_layer",
                   bias_spec(Sharding::vocabulary({config.vocab_size}, vocab_pad_multiple)),
                   rank.tp, "bias"),
      output_(config, rank, {weight, &output_bias_.parameter}, /*may_lack_labels=*/true) {}

StepOutput MaskedLmHead::loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                              const ForwardContext& context, const LossGradient& gradient) const {
  return output_.loss(transformed(hidden_sbh), microbatch, context, gradient);
}

at::Tensor MaskedLmHead::logits(const at::Tensor& hidden_sbh) const {
  return output_.logits(transformed(hidden_sbh));
}

at::Tensor MaskedLmHead::transformed(const at::Tensor& hidden_sbh) const {
  const at::Tensor dense = linear(hidden_sbh, dense_.weight, nullptr);
  return layer_norm_.forward(
      activate(dense, {.form = {.kind = Activation::gelu}, .bias = &dense_.bias}));
}

ClassHead::ClassHead(Module* parent, const TransformerConfig& config, const Rank& rank,
                     ClassHeadOptions options)
    : rank_(rank),
      options_(std::move(options)),
      classes_(parent, options_.path, config, rank, options_.num_outputs),
      pooler_(parent, "pooler.dense", config, rank, config.hidden_size) {}

at::Tensor ClassHead::count(const Microbatch& microbatch) const {
  const at::Tensor& classes = microbatch.at(options_.label);
  return at::scalar_tensor(classes.numel(), classes.options().dtype(at::kFloat));
}

at::Tensor ClassHead::pooled_rows(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                                  const ForwardContext& context) const {
  if (!microbatch.has(kChoiceStarts))
    return first_rows(hidden_sbh, microbatch, context, rank_.tp).unsqueeze(0);
  const at::Tensor rows_sbh =
      context.sequence_parallel
          ? gather_replicated_sequence(hidden_sbh, hidden_sbh.size(0) * rank_.tp.size, rank_.tp,
                                       "pooler")
          : hidden_sbh;
  return at::index_select(rows_sbh, 0, microbatch.at(kChoiceStarts).select(0, 0));
}

StepOutput ClassHead::loss(const at::Tensor& hidden_sbh, const Microbatch& microbatch,
                           const ForwardContext& context, const LossGradient&) const {
  const at::Tensor rows = pooled_rows(hidden_sbh, microbatch, context);
  DropoutSite site = context.dropout(options_.path, "dropout", options_.dropout);
  site.positions = {};  // row i is choice i
  if (site.active())    // rows of padding may follow the samples
    site.sample_ordinals = site.sample_ordinals.narrow(0, 0, rows.size(1));
  const at::Tensor pooled = dropout(at::tanh(linear(rows, pooler_.weight, &pooler_.bias)), site);
  const at::Tensor logits =
      linear(pooled, classes_.weight, &classes_.bias).transpose(0, 1).flatten(1);
  const at::Tensor &classes = microbatch.at(options_.label),
                   wide = logits.to(compute_type(logits.scalar_type()));
  at::Tensor sum = at::cross_entropy_loss(wide, classes, {}, at::Reduction::Sum),
             samples = count(microbatch),
             correct = at::argmax(wide.detach(), 1).eq(classes).sum().to(sum.scalar_type());
  if (context.cp != nullptr && context.cp->rank > 0)
    sum = sum * 0, samples = samples * 0, correct = correct * 0;
  StepOutput output = StepOutput::of(options_.loss_name, sum, samples);
  if (options_.shows_accuracy) output.terms.push_back({kAccuracy, correct, samples});
  return output;
}

}  // namespace megatron
