#include "megatron/nn/attention.h"

#include <string>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/ops/context_parallel_attention.h"
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

Attention::Attention(Module* parent, std::string_view name, const LayerArguments& arguments)
    : Sublayer(parent, name, {.norm = LayerNode::attn_norm}),
      config_(arguments.config),
      rank_(arguments.rank),
      layer_index_(arguments.layer_index),
      causal_(arguments.causal),
      heads_(local_heads(config_, arguments.rank.tp)),
      first_head_(arguments.rank.tp.rank * heads_) {}

AttentionOptions Attention::attention_options(const ForwardContext& context,
                                              const at::Device& device) {
  AttentionOptions options;
  options.causal = causal_;
  if (const auto window = config_.kind(layer_index_).window) options.window = *window;
  if (alibi_slopes_.defined() && alibi_slopes_.device() != device)
    alibi_slopes_ = alibi_slopes_.to(device);
  options.alibi_slopes = alibi_slopes_;
  options.document_ids = context.document_ids;
  options.first_head = first_head_;
  options.dropout = context.dropout(path(), "core_attention", config_.attention_dropout);
  return options;
}

at::Tensor Attention::attend(const AttentionInputs& inputs, double scale,
                             const ForwardContext& context) {
  observe(context, *this, "query", inputs.q);
  observe(context, *this, "key", inputs.k);
  observe(context, *this, "value", inputs.v);
  return run_node(context, {*this, "core_attention", LayerNode::core_attn}, [&]() -> at::Tensor {
    AttentionOptions options = attention_options(context, inputs.q.device());
    options.scale = config_.softmax_scale.value_or(scale);
    if (context.caches != nullptr)
      return cached_attention(inputs, options, *context.placement, *context.caches, path());
    if (context.placement == nullptr)
      return core_attention(inputs.q, inputs.k, inputs.v, options).out;
    return context_parallel_attention(inputs, options,
                                      {.axis = *context.cp,
                                       .placement = *context.placement,
                                       .comm_type = config_.kind(layer_index_).cp_comm_type,
                                       .a2a = &rank_.cp_a2a,
                                       .p2p = &rank_.cp_p2p,
                                       .activities = rank_.activities});
  });
}

}  // namespace megatron
