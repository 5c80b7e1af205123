#include "megatron/nn/self_attention.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/rotary.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

ColumnParallelLinear::Options qkv_options(const LayerArguments& arguments) {
  const TransformerConfig& config = arguments.config;
  const std::int64_t d = config.kv_channels, groups = config.query_groups();
  const std::int64_t q_rows = config.num_attention_heads / groups * d;
  return {.in = config.hidden_size,
          .out = (config.num_attention_heads + 2 * groups) * d,
          .blocks = {{q_rows}, {d, /*splittable=*/false}, {d, /*splittable=*/false}},
          .repeats = groups,
          .bias = config.add_bias_linear || config.add_qkv_bias,
          .with_norm = arguments.has_input_norm,
          .node = LayerNode::qkv_linear};
}

/// Returns the slopes 2^(−8/n·(i+1)) for n a power of two.
void append_slopes(std::int64_t n, std::int64_t count, std::int64_t step,
                   std::vector<double>& slopes) {
  for (std::int64_t i = 0; i < count; ++i)
    slopes.push_back(std::exp2(-8.0 / static_cast<double>(n) * static_cast<double>(i * step + 1)));
}

}  // namespace

at::Tensor alibi_slopes(std::int64_t num_heads) {
  const auto power = std::int64_t{1}
                     << static_cast<int>(std::floor(std::log2(static_cast<double>(num_heads))));
  std::vector<double> slopes;
  append_slopes(power, power, 1, slopes);
  append_slopes(2 * power, num_heads - power, 2, slopes);
  at::Tensor result = at::empty({num_heads}, at::kDouble);
  std::copy(slopes.begin(), slopes.end(), result.mutable_data_ptr<double>());
  return result;
}

SelfAttention::SelfAttention(Module* parent, std::string_view name, const LayerArguments& arguments)
    : Attention(parent, name, arguments),
      groups_(std::max<std::int64_t>(1, config_.query_groups() / arguments.rank.tp.size)),
      linear_qkv_(this, "linear_qkv", config_, arguments.rank, qkv_options(arguments)),
      linear_proj_(this, "linear_proj", config_, arguments.rank,
                   config_.num_attention_heads * config_.kv_channels, config_.hidden_size,
                   LayerNode::attn_proj) {
  if (config_.qk_layernorm) {
    q_layernorm_ =
        std::make_unique<QueryKeyNorm>(this, "q_layernorm", arguments, config_.num_attention_heads);
    k_layernorm_ =
        std::make_unique<QueryKeyNorm>(this, "k_layernorm", arguments, config_.query_groups());
  }
  if (config_.position_embedding_type == PositionEmbedding::alibi)
    alibi_slopes_ = alibi_slopes(config_.num_attention_heads).narrow(0, first_head_, heads_);
}

QueryKeyValue SelfAttention::split(const at::Tensor& mixed, const ForwardContext& context) const {
  const Rotation rotation{context.rotary_cos, context.rotary_sin, config_.rotary_interleaved};
  const bool rotates = rotation.cos.defined();
  if (!q_layernorm_ && !config_.clip_qkv)
    return split_query_key_value(mixed, groups_, config_.kv_channels,
                                 rotates ? &rotation : nullptr);
  QueryKeyValue heads = split_query_key_value(mixed, groups_, config_.kv_channels, nullptr);
  if (q_layernorm_) {
    heads.q = run_node(context, {*q_layernorm_}, [&] { return q_layernorm_->forward(heads.q); });
    heads.k = run_node(context, {*k_layernorm_}, [&] { return k_layernorm_->forward(heads.k); });
  }
  if (config_.clip_qkv) {
    for (at::Tensor* x : {&heads.q, &heads.k, &heads.v})
      *x = differentiable_by_autograd({.name = "ClampBackward"}, {*x},
                                      [limit = *config_.clip_qkv](const Tensors& in) {
                                        return at::clamp(in[0], -limit, limit);
                                      });
  }
  if (!rotates) return heads;
  const auto rotated = [&](const at::Tensor& x) {
    return apply_rotary(x, rotation.cos, rotation.sin, rotation.interleaved);
  };
  return {rotated(heads.q), rotated(heads.k), heads.v};
}

at::Tensor SelfAttention::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor mixed = linear_qkv_.forward(input_sbh, context);
  const auto [q, k, v] = split(mixed, context);
  const double scale = 1 / std::sqrt(static_cast<double>(config_.kv_channels));
  return linear_proj_.forward(attend({q, k, v}, scale, context), context);
}

}  // namespace megatron
