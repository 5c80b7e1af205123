#include "megatron/nn/self_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <cmath>

#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/ops/differentiable.h"
#include "megatron/ops/kernel_type.h"
#include "megatron/ops/norm_rows.h"
#include "megatron/ops/rotary.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

ColumnParallelLinear::Options qkv_options(const LayerArguments& arguments) {
  const TransformerConfig& config = arguments.config;
  const std::int64_t d = config.kv_channels, groups = config.query_groups();
  const std::int64_t q_rows = config.num_attention_heads / groups * d;
  std::vector<ShardBlock> blocks{{q_rows}, {d, /*splittable=*/false}, {d, /*splittable=*/false}};
  if (config.attention_output_gate) blocks.insert(blocks.begin(), {q_rows});
  const std::int64_t heads =
      config.num_attention_heads * (config.attention_output_gate ? 2 : 1) + 2 * groups;
  return {.in = config.hidden_size,
          .out = heads * d,
          .blocks = std::move(blocks),
          .repeats = groups,
          .bias = config.add_bias_linear || config.add_qkv_bias,
          .with_norm = arguments.has_input_norm,
          .node = LayerNode::qkv_linear};
}

/// Divides the rows of the last dimension by their root mean square.
at::Tensor l2_norm(const at::Tensor& x, double epsilon) {
  const NormParams params{
      .weight = at::ones({x.size(-1)}, x.options().dtype(compute_type(x.scalar_type()))),
      .bias = {},
      .epsilon = epsilon};
  Recording recording({.name = "L2NormBackward"}, {x});
  const NormRows rows = norm_rows(x.contiguous(), nullptr, params, x.scalar_type());
  return recording.finish(rows.y, {rows.sum, rows.rstd}, [params](BackwardPass& pass) -> Tensors {
    const NormRows kept{.sum = pass.saved[0], .y = {}, .mean = {}, .rstd = pass.saved[1]};
    const at::Tensor dy = pass.gradients[0].contiguous();
    return {norm_rows_backward(dy, /*residual_grad=*/{}, kept, nullptr, params).dsum};
  });
}

/// Returns x·sigmoid(gate). The sigmoid is taken in double: in float32 its last bit depends on how
/// many numbers ATen computes together.
at::Tensor gated(const at::Tensor& x, const at::Tensor& gate) {
  return elementwise_by_autograd({.name = "OutputGateBackward"}, {x, gate}, [](const Tensors& in) {
    const auto type = in[0].scalar_type();
    return (in[0] * in[1].to(at::kDouble).sigmoid().to(compute_type(type))).to(type);
  });
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

void SelfAttention::normalize(QueryKeyValue& heads, const ForwardContext& context) const {
  if (!q_layernorm_) return;
  heads.q = run_node(context, {*q_layernorm_}, [&] { return q_layernorm_->forward(heads.q); });
  heads.k = run_node(context, {*k_layernorm_}, [&] { return k_layernorm_->forward(heads.k); });
}

QueryKeyValue SelfAttention::split(const at::Tensor& mixed, const ForwardContext& context,
                                   at::Tensor& gate) const {
  Rotation rotation{.interleaved = config_.rotary_interleaved};
  if (kind_.rotary == RotaryKind::global)
    std::tie(rotation.cos, rotation.sin) = std::tie(context.rotary_cos, context.rotary_sin);
  if (kind_.rotary == RotaryKind::local)
    std::tie(rotation.cos, rotation.sin) = std::tie(context.local_cos, context.local_sin);
  const bool rotates = rotation.cos.defined();
  const bool norms_first =
      q_layernorm_ && config_.qk_layernorm_placement == QkNormPlacement::before_rotary;
  const bool rotates_at_once =
      rotates && !norms_first && !config_.clip_qkv && !config_.attention_output_gate;
  QueryKeyValue heads = split_query_key_value(mixed, groups_, config_.kv_channels,
                                              rotates_at_once ? &rotation : nullptr);
  if (config_.attention_output_gate) {
    const Tensors halves =
        heads.q.unflatten(2, {groups_, 2, heads_ / groups_}).unbind(3);  // [s, b, g, r, d]
    heads.q = halves[0].flatten(2, 3);
    gate = halves[1].flatten(2);
  }
  if (norms_first) normalize(heads, context);
  if (config_.clip_qkv) {
    for (at::Tensor* x : {&heads.q, &heads.k, &heads.v})
      *x = differentiable_by_autograd({.name = "ClampBackward"}, {*x},
                                      [limit = *config_.clip_qkv](const Tensors& in) {
                                        return at::clamp(in[0], -limit, limit);
                                      });
  }
  if (rotates && !rotates_at_once) {
    for (at::Tensor* x : {&heads.q, &heads.k})
      *x = apply_rotary(*x, rotation.cos, rotation.sin, rotation.interleaved);
  }
  if (!norms_first) normalize(heads, context);
  if (config_.qk_l2_norm && rotates) {
    for (at::Tensor* x : {&heads.q, &heads.k}) *x = l2_norm(*x, config_.norm_epsilon);
  }
  return heads;
}

std::vector<ScaledRows> SelfAttention::row_factors(const std::vector<double>& eta,
                                                   double alpha) const {
  const std::int64_t d = config_.kv_channels, queries = heads_ / groups_,
                     of_group = config_.num_attention_heads / config_.query_groups();
  Parameter& weight = linear_qkv_.weight();
  at::Tensor factors = at::ones({groups_, weight.local_shape()[0] / groups_}, at::kDouble);
  for (std::int64_t group = 0; group < groups_; ++group) {
    const double mine =
        eta.at(static_cast<std::size_t>((first_head_ + group * queries) / of_group));
    const at::Tensor rows = factors[group];
    rows.narrow(0, 0, queries * d).fill_(std::pow(mine, alpha));
    rows.narrow(0, rows.size(0) - 2 * d, d).fill_(std::pow(mine, 1 - alpha));
  }
  return {{weight, factors.flatten()}};
}

at::Tensor SelfAttention::forward(const at::Tensor& input_sbh, const ForwardContext& context) {
  const at::Tensor mixed = linear_qkv_.forward(input_sbh, context);
  at::Tensor gate;
  auto [q, k, v] = split(mixed, context, gate);
  if (context.query_factor.defined() &&
      (kind_.rotary == RotaryKind::none || config_.attn_temperature_all_layers))
    q = (q * context.query_factor).to(q.scalar_type());
  at::Tensor out =
      attend({q, k, v}, 1 / std::sqrt(static_cast<double>(config_.kv_channels)), context);
  if (gate.defined()) out = gated(out, gate);
  return linear_proj_.forward(out, context);
}

}  // namespace megatron
