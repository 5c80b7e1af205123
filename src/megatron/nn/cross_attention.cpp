#include "megatron/nn/cross_attention.h"

#include <ATen/ops/ones.h>

#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// Returns the options of a projection to each head's `blocks` of kv_channels rows.
ColumnParallelLinear::Options projection(const TransformerConfig& config, std::size_t blocks) {
  const std::int64_t d = config.kv_channels, heads = config.num_attention_heads;
  return {.in = config.hidden_size,
          .out = static_cast<std::int64_t>(blocks) * heads * d,
          .blocks = std::vector<ShardBlock>(blocks, ShardBlock{d}),
          .repeats = heads,
          .bias = config.add_bias_linear || config.add_qkv_bias,
          .node = LayerNode::qkv_linear};
}

}  // namespace

CrossAttention::CrossAttention(Module* parent, std::string_view name,
                               const LayerArguments& arguments)
    : Attention(parent, name, arguments, /*is_cross=*/true),
      norm_(arguments.has_input_norm ? std::make_unique<Norm>(parent, "pre_cross_attn_layernorm",
                                                              config_, config_.hidden_size, rank_)
                                     : nullptr),
      linear_q_(this, "linear_q", config_, rank_, projection(config_, 1)),
      linear_kv_(this, "linear_kv", config_, rank_, projection(config_, 2)),
      linear_proj_(this, "linear_proj", config_, rank_,
                   config_.num_attention_heads * config_.kv_channels, config_.hidden_size,
                   LayerNode::attn_proj) {}

at::Tensor CrossAttention::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const std::int64_t d = config_.kv_channels;
  AttentionInputs inputs;
  inputs.q = linear_q_.forward(input_sbh, context).unflatten(2, {heads_, d});
  if (context.caches == nullptr || context.encoder_placement != nullptr) {
    const at::Tensor kv =
        linear_kv_.forward(context.published(kEncoderRows), context).unflatten(2, {heads_, 2 * d});
    inputs.k = kv.narrow(3, 0, d);
    inputs.v = kv.narrow(3, d, d);
  }
  return linear_proj_.forward(attend(inputs, 1 / std::sqrt(static_cast<double>(d)), context),
                              context);
}

std::vector<ScaledRows> CrossAttention::row_factors(const std::vector<double>& eta,
                                                    double alpha) const {
  const std::int64_t d = config_.kv_channels;
  at::Tensor of_q = at::ones({heads_, d}, at::kDouble),
             of_kv = at::ones({heads_, 2 * d}, at::kDouble);
  for (std::int64_t head = 0; head < heads_; ++head) {
    const double mine = eta.at(static_cast<std::size_t>(first_head_ + head));
    of_q[head].fill_(std::pow(mine, alpha));
    of_kv[head].narrow(0, 0, d).fill_(std::pow(mine, 1 - alpha));
  }
  return {{linear_q_.weight(), of_q.flatten()}, {linear_kv_.weight(), of_kv.flatten()}};
}

}  // namespace megatron
