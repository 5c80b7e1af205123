// s positions, b samples, h hidden channels.
#include "megatron/nn/multi_latent_attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>

#include <cmath>

#include "megatron/base/error.h"
#include "megatron/config/transformer_config.h"
#include "megatron/nn/forward_context.h"
#include "megatron/nn/linear.h"
#include "megatron/ops/context_parallel_attention.h"
#include "megatron/ops/kv_cache.h"
#include "megatron/ops/latent_heads.h"
#include "megatron/ops/recompute.h"
#include "megatron/ops/tensor_parallel_mappings.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/weight_init.h"

namespace megatron {
namespace {

/// Returns the declaration of a projection to a latent. Its gradient is whole on each rank of tp
/// unless the rank has a slice of the rows.
ParameterSpec down_spec(const LayerArguments& arguments, std::int64_t size) {
  return gemm_weight_spec(
      arguments.config,
      Sharding::replicated({size, arguments.config.hidden_size}, arguments.rank.sequence_parallel));
}

ColumnParallelLinear::Options up_options(const TransformerConfig& config, std::int64_t latent,
                                         std::int64_t width) {
  const std::int64_t heads = config.num_attention_heads;
  return {.in = latent > 0 ? latent : config.hidden_size,
          .out = heads * width,
          .blocks = {{width, /*splittable=*/false}},
          .repeats = heads,
          .bias = false,
          .with_norm = latent > 0 && config.qk_layernorm,
          .node = LayerNode::qkv_linear};
}

at::Tensor down(const ParameterModule& projection, const at::Tensor& x,
                const ForwardContext& context) {
  return run_node(context, {projection, {}, LayerNode::qkv_linear},
                  [&] { return linear(x, projection.parameter, nullptr); });
}

/// Returns x [rows, 1, n, channels] times a matrix [channels, result] of each head. A copy of x has
/// an alignment that does not depend on where its rows lie in a batch, and so the same bits.
at::Tensor by_head(const at::Tensor& x, const at::Tensor& matrices) {
  return at::bmm(x.squeeze(1).transpose(0, 1).clone(at::MemoryFormat::Contiguous), matrices)
      .transpose(0, 1)
      .unsqueeze(1);
}

/// Applies the norm that the projection of a latent owns, if any.
at::Tensor normed(const at::Tensor& latent, const ColumnParallelLinear& up,
                  const TransformerConfig& config, const ForwardContext& context) {
  NormWeights weights = up.input_norm();
  if (weights.weight == nullptr) return latent;
  weights.options.epsilon = config.latent_norm_epsilon.value_or(config.norm_epsilon);
  return run_node(context, {up, weights.op},
                  [&] { return norm(latent, *weights.weight, weights.bias, weights.options); });
}

}  // namespace

MultiLatentAttention::MultiLatentAttention(Module* parent, std::string_view name,
                                           const LayerArguments& arguments)
    : Attention(parent, name, arguments),
      linear_q_(this, config_.q_lora_rank > 0 ? "linear_q_up_proj" : "linear_q_proj", config_,
                rank_, up_options(config_, config_.q_lora_rank, config_.qk_channels())),
      linear_kv_down_proj_(this, "linear_kv_down_proj",
                           down_spec(arguments, config_.kv_lora_rank + config_.qk_pos_emb_head_dim),
                           rank_.tp),
      linear_kv_up_proj_(
          this, "linear_kv_up_proj", config_, rank_,
          up_options(config_, config_.kv_lora_rank, config_.qk_head_dim + config_.v_head_dim)),
      linear_proj_(this, "linear_proj", config_, rank_,
                   config_.num_attention_heads * config_.v_head_dim, config_.hidden_size,
                   LayerNode::attn_proj) {
  if (config_.cache_mla_latents) linear_kv_up_proj_.weight().never_pack();
  if (arguments.has_input_norm)
    input_layernorm_.emplace(parent, "input_layernorm", config_, config_.hidden_size, rank_);
  if (config_.q_lora_rank > 0)
    linear_q_down_proj_.emplace(this, "linear_q_down_proj",
                                down_spec(arguments, config_.q_lora_rank), rank_.tp);
}

double latent_attention_scale(const TransformerConfig& config) {
  const double factor = config.rope_scaling_type == RopeScaling::yarn
                            ? yarn_mscale(config.rope_scaling_factor, config.yarn_mscale_all_dim)
                            : 1;
  return factor * factor / std::sqrt(static_cast<double>(config.qk_channels()));
}

NormWeights MultiLatentAttention::input_norm() const {
  return input_layernorm_ ? input_layernorm_->weights()
                          : NormWeights{.options = norm_options(config_)};
}

Tensors MultiLatentAttention::latents(const at::Tensor& input_sbh,
                                      const ForwardContext& context) const {
  const at::Tensor q = linear_q_down_proj_ ? normed(down(*linear_q_down_proj_, input_sbh, context),
                                                    linear_q_, config_, context)
                                           : input_sbh;
  const std::vector<at::Tensor> parts =
      down(linear_kv_down_proj_, input_sbh, context)
          .split_with_sizes({config_.kv_lora_rank, config_.qk_pos_emb_head_dim}, -1);
  const at::Tensor key = parts[1].contiguous();
  return {q, normed(parts[0].contiguous(), linear_kv_up_proj_, config_, context),
          context.sequence_parallel
              ? gather_from_sequence_parallel_region(key, rank_.tp, "shared key")
              : copy_to_tensor_parallel_region(key, rank_.tp, "shared key")};
}

AttentionInputs MultiLatentAttention::heads(const Tensors& latents,
                                            const ForwardContext& context) const {
  return latent_heads(
      linear_q_.forward(latents[0], context), linear_kv_up_proj_.forward(latents[1], context),
      latents[2],
      {.qk = config_.qk_head_dim, .rotated = config_.qk_pos_emb_head_dim, .v = config_.v_head_dim},
      {context.rotary_cos, context.rotary_sin, /*interleaved=*/true});
}

at::Tensor MultiLatentAttention::attend_to_latents(const Tensors& latents,
                                                   const ForwardContext& context) {
  MEGATRON_CHECK(!context.sequence_parallel, "a cache of latents keeps all rows");
  const std::int64_t rank = config_.kv_lora_rank, qk = config_.qk_head_dim,
                     rotated = config_.qk_pos_emb_head_dim;
  const Rotation rotation{context.rotary_cos, context.rotary_sin, /*interleaved=*/true};
  const SequencePlacement& placement = *context.placement;
  const Axis& cp = *context.cp;
  const at::Tensor kept = gather_placed_rows(
      at::cat({latents[1].unsqueeze(2), rotate(latents[2].unsqueeze(2), rotation)}, -1), placement,
      cp);
  const at::Tensor q =
      linear_q_.forward(latents[0], context).unflatten(-1, {heads_, config_.qk_channels()});
  const at::Tensor q_position = rotate(q.narrow(-1, qk, rotated), rotation);
  std::optional<AttentionInputs> own;
  const at::Tensor up = linear_kv_up_proj_.weight().value().view({heads_, -1, rank});
  const at::Tensor from_key = up.narrow(1, 0, qk),
                   to_value = up.narrow(1, qk, config_.v_head_dim).transpose(1, 2);
  const AttentionOptions options =
      attention_options(kept, latent_attention_scale(config_), context);
  // What a sequence computes does not depend on the others.
  Tensors out(context.caches->size()), queries, keys;
  std::vector<std::size_t> later;                    // sequences that attend to latents,
  std::vector<std::int64_t> begins{0}, of_query{0};  // their rows among keys and queries,
  std::vector<PositionRun> later_runs;               // those of them that have queries here,
  Caches caches;                                     // and their caches
  const std::vector<SequencePiece> pieces =
      pieces_of(placement.runs_of[static_cast<std::size_t>(cp.rank)], placement);
  auto piece = pieces.begin();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const PositionRun rows = rows_of_sequence(placement, static_cast<std::int64_t>(i));
    const auto part = [&](const at::Tensor& x) { return x.narrow(0, rows.first, rows.count); };
    SequenceCache& cache = *(*context.caches)[i];
    std::vector<PositionRun> runs;  // of the sequence, with queries here
    std::int64_t first = 0, count = 0;
    for (; piece != pieces.end() && piece->sequence == static_cast<std::int64_t>(i); ++piece) {
      if (runs.empty()) first = piece->row;
      runs.push_back(piece->positions);
      count += piece->positions.count;
    }
    const auto mine = [&](const at::Tensor& x) { return x.narrow(0, first, count); };
    if (cache.length == 0 && rows.count > 1) {
      cached_attention({{}, part(kept), part(kept).narrow(-1, 0, rank)}, {},
                       whole_placement(rows.count, {}), {&cache}, path());
      if (!own) {
        own = heads(latents, context);
        for (at::Tensor* x : {&own->k, &own->v}) *x = gather_placed_rows(*x, placement, cp);
      }
      out[i] = attend_to_sequences({mine(own->q), part(own->k), part(own->v)}, options,
                                   whole_placement(rows.count, {}), runs);
      continue;
    }
    queries.push_back(
        at::cat({by_head(mine(q).narrow(-1, 0, qk), from_key), mine(q_position)}, -1));
    keys.push_back(part(kept));
    later.push_back(i);
    for (const PositionRun& run : runs)
      later_runs.push_back({begins.back() + run.first, run.count});
    begins.push_back(begins.back() + rows.count);
    of_query.push_back(of_query.back() + count);
    caches.push_back(&cache);
  }
  if (!later.empty()) {
    const at::Tensor key = at::cat(keys);
    const at::Tensor of_latents = cached_attention(
        {at::cat(queries), key, key.narrow(-1, 0, rank)}, options,
        {.length = begins.back(), .runs_of = {later_runs}, .cu_seqlens = begins}, caches, path());
    for (std::size_t i = 0; i < later.size(); ++i) {
      const at::Tensor mine = of_latents.narrow(0, of_query[i], of_query[i + 1] - of_query[i]);
      out[later[i]] = by_head(mine.unflatten(-1, {heads_, rank}), to_value).flatten(2);
    }
  }
  return out.size() == 1 ? out.front() : at::cat(out);
}

std::vector<ScaledRows> MultiLatentAttention::row_factors(const std::vector<double>& eta,
                                                          double alpha) const {
  const std::int64_t qk = config_.qk_head_dim;
  at::Tensor q = at::ones({heads_, config_.qk_channels()}, at::kDouble),
             kv = at::ones({heads_, qk + config_.v_head_dim}, at::kDouble);
  for (std::int64_t head = 0; head < heads_; ++head) {
    const double mine = eta.at(static_cast<std::size_t>(first_head_ + head));
    // The rotated key is that of all heads, so that its queries take all of the factor.
    q[head].fill_(mine).narrow(0, 0, qk).fill_(std::pow(mine, alpha));
    kv[head].narrow(0, 0, qk).fill_(std::pow(mine, 1 - alpha));
  }
  return {{linear_q_.weight(), q.flatten()}, {linear_kv_up_proj_.weight(), kv.flatten()}};
}

at::Tensor MultiLatentAttention::forward(const at::Tensor& input_sbh,
                                         const ForwardContext& context) {
  const Tensors compressed = latents(input_sbh, context);
  if (context.caches != nullptr && config_.cache_mla_latents)
    return linear_proj_.forward(attend_to_latents(compressed, context), context);
  RecomputedOutputs recomputed;
  const bool recomputes =
      context.policy != nullptr && context.policy->recomputed.contains(LayerNode::mla_up_proj);
  const SavedTensorHooksScope scope(recomputes ? &recomputed : nullptr);
  const auto make_heads = [this](const Tensors& x, const ForwardContext& own) -> Tensors {
    const auto [q, k, v] = heads(x, own);
    return {q, k, v};
  };
  const Tensors qkv =
      recomputes ? recomputed_block(compressed, context, make_heads, {.outputs = &recomputed})
                 : make_heads(compressed, context);
  const at::Tensor out = attend({qkv[0], qkv[1], qkv[2]}, latent_attention_scale(config_), context);
  return linear_proj_.forward(out, context);
}

}  // namespace megatron
