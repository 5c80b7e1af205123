#include "megatron/nn/attention.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <limits>
#include <string>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/context_parallel_attention.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

std::int64_t local_heads(const TransformerConfig& config, const Axis& tp) {
  if (config.num_attention_heads % tp.size != 0) {
    throw UserError({std::to_string(config.num_attention_heads) +
                         " attention heads cannot be split over tp=" + std::to_string(tp.size),
                     "",
                     "choose a --tensor-model-parallel-size that divides --num-attention-heads"});
  }
  return config.num_attention_heads / tp.size;
}

}  // namespace

Attention::Attention(Module* parent, std::string_view name, const LayerArguments& arguments,
                     bool is_cross)
    : Sublayer(parent, name, {.norm = LayerNode::attn_norm}),
      config_(arguments.config),
      rank_(arguments.rank),
      kind_(config_.kind(arguments.layer_index)),
      causal_(arguments.causal && !is_cross),
      is_cross_(is_cross),
      heads_(local_heads(config_, arguments.rank.tp)),
      first_head_(arguments.rank.tp.rank * heads_) {
  if (config_.softmax_type == SoftmaxType::learnable)
    core_attention_ = std::make_unique<ParameterModule>(
        this, "core_attention",
        ParameterSpec{.sharding = Sharding::split({config_.num_attention_heads}, 0),
                      .init = Init::normal(config_.init_method_std),
                      .tags = {.no_decay = true}},
        rank_.tp, "softmax_offset");
  if (config_.has_relative_bias() && config_.relative_attention_per_layer && !is_cross)
    positions_ = std::make_unique<RelativePositions>(this, "relative_pos_emb", config_, rank_.tp,
                                                     !arguments.causal);
}

void Attention::record_max_scores() {
  max_scores_ = at::full({heads_}, -std::numeric_limits<float>::infinity(),
                         at::TensorOptions(at::kFloat).device(rank_.device));
}

at::Tensor Attention::sinks(const at::TensorOptions& type) const {
  if (config_.softmax_type == SoftmaxType::vanilla) return {};
  if (core_attention_ == nullptr)
    return at::zeros({heads_}, type.dtype(compute_type(type.dtype().toScalarType())));
  return tracked_copy(core_attention_->parameter);
}

AttentionOptions Attention::attention_options(const at::Tensor& query, double scale,
                                              const ForwardContext& context) {
  AttentionOptions options;
  options.causal = causal_;
  options.scale = config_.softmax_scale.value_or(scale);
  options.sinks = sinks(query.options());
  options.max_scores = max_scores_;
  options.softcap = config_.attn_logit_softcapping;
  if (kind_.window && !is_cross_) options.window = *kind_.window;
  options.chunk = is_cross_ ? 0 : kind_.chunk;
  if (alibi_slopes_.defined() && alibi_slopes_.device() != query.device())
    alibi_slopes_ = alibi_slopes_.to(query.device());
  options.alibi_slopes = alibi_slopes_;
  options.document_ids = context.document_ids;
  if (is_cross_)
    options.key_document_ids = context.encoder_document_ids;
  else
    options.distance_bias =
        positions_ ? positions_->forward(context.num_positions()) : context.relative_bias;
  if (options.distance_bias.defined()) options.total_q = options.total_k = context.num_positions();
  options.first_head = first_head_;
  options.dropout = context.dropout(path(), "core_attention", config_.attention_dropout);
  return options;
}

at::Tensor Attention::attend(const AttentionInputs& inputs, double scale,
                             const ForwardContext& context) {
  observe(context, *this, "query", inputs.q);
  if (inputs.k.defined()) {  // not of texts that are in the caches
    observe(context, *this, "key", inputs.k);
    observe(context, *this, "value", inputs.v);
  }
  return run_node(context, {*this, "core_attention", LayerNode::core_attn}, [&] {
    const AttentionOptions options = attention_options(inputs.q, scale, context);
    if (is_cross_ && context.caches != nullptr)
      return cached_cross_attention(inputs, options, *context.placement,
                                    context.encoder_placement.get(), *context.caches, path());
    MEGATRON_CHECK(!is_cross_ || context.placement == nullptr,
                   "cross attention of divided or packed sequences");
    if (context.caches != nullptr)
      return cached_attention(inputs, options, *context.placement, *context.caches, path(),
                              *context.cp);
    if (context.placement == nullptr)
      return core_attention(inputs.q, inputs.k, inputs.v, options).out;
    return context_parallel_attention(inputs, options,
                                      {.axis = *context.cp,
                                       .placement = *context.placement,
                                       .comm_type = kind_.cp_comm_type,
                                       .a2a = &rank_.cp_a2a,
                                       .p2p = &rank_.cp_p2p,
                                       .activities = rank_.activities});
  });
}

}  // namespace megatron
