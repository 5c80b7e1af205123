#include "megatron/planner/activation_memory.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "megatron/config/context_sizes.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/parallel/rank.h"
#include "megatron/params/store_options.h"

namespace megatron {
namespace {

constexpr double kFloatBytes = 4;

/// Returns the tokens of which this rank keeps rows of width h.
double hidden_rows(const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens) /
         (layout.sequence_parallel ? static_cast<double>(layout.tensor_parallel) : 1);
}

double fc1_width(const TransformerConfig& config, std::int64_t width) {
  return (config.gated_linear_unit ? 2.0 : 1.0) * static_cast<double>(width);
}

/// Returns whether the result of attention exists twice: in the order of its attention, and in that
/// of the rank's tokens.
bool exchanges_result(const ActivationLayout& layout, CpCommType exchange) {
  return layout.context_parallel > 1 && exchange != CpCommType::p2p;
}

/// Rows of kv_channels that attention keeps per token on one rank of tp.
struct HeadsKept {
  double qkv = 0, result = 0;
  double attention_inputs = 0;  ///< part of qkv
  double query_copy = 0;        ///< part of attention_inputs
  double key = 0;
};

HeadsKept attention_heads_kept(const TransformerConfig& config, const ActivationLayout& layout,
                               CpCommType exchange) {
  const double tensor = static_cast<double>(layout.tensor_parallel),
               heads = static_cast<double>(config.num_attention_heads) / tensor,
               groups = static_cast<double>(config.query_groups()) / tensor,
               ranks = static_cast<double>(layout.context_parallel);
  const bool rotates = config.has_rotary();
  const bool is_whole = !exchanges_result(layout, exchange);
  // What the operations before attention keep: the inputs of the norms, their results where these
  // are clamped, and the q|k|v that a clamp reads.
  const double mixed = heads + 2 * groups;
  double kept = config.qk_layernorm ? heads + groups : 0;
  if (config.qk_l2_norm) kept += heads + groups;
  if (config.attention_output_gate) kept += 2 * heads;  // the gate and the gated output
  const bool copies_q = config.qk_layernorm || config.clip_qkv || rotates || heads != groups,
             copies_k = config.qk_layernorm || config.clip_qkv || rotates;
  const bool reads_mixed = config.clip_qkv.has_value();
  const double only_mixed = reads_mixed ? 0 : mixed;  // else the clamp keeps it as well
  double inputs = 0, query_copy = copies_q ? heads : 0, key = groups;
  if (config.clip_qkv && config.qk_layernorm) kept += heads + groups;
  // The inputs of attention. Those that are no copies are views of q|k|v.
  if (is_whole) {
    const double copies =
        (copies_q ? heads : 0) + (copies_k ? groups : 0) + (reads_mixed ? groups : 0);
    kept += mixed + copies;
    inputs = only_mixed + copies;
  } else if (exchange == CpCommType::all_gather) {
    kept += (copies_q ? heads : mixed) + (copies_q && reads_mixed ? mixed : 0) + 2 * groups * ranks;
    inputs = (copies_q ? heads : only_mixed) + 2 * groups * ranks;
    key = groups * ranks;
  } else {
    const double shared = std::max(groups, static_cast<double>(layout.head_ranks(exchange)));
    inputs = heads + 2 * shared;
    query_copy = heads;
    key = shared;
    kept += inputs + (reads_mixed ? mixed : 0);
  }
  return {.qkv = kept,
          .result = (is_whole ? 1 : 2) * heads,
          .attention_inputs = inputs,
          .query_copy = query_copy,
          .key = key};
}

/// Returns the parts of attention and of the norms.
LayerActivations attention_parts(const TransformerConfig& config, const ActivationLayout& layout,
                                 CpCommType exchange) {
  const double tensor = static_cast<double>(layout.tensor_parallel),
               tokens = static_cast<double>(layout.tokens),
               heads = static_cast<double>(config.num_attention_heads);
  const double num_statistics = config.normalization == Normalization::LayerNorm ? 2 : 1;
  const double rows = hidden_rows(layout),
               hidden = rows * static_cast<double>(config.hidden_size) * layout.element_bytes;
  const double num_head_norms = config.qk_layernorm_scope == QkNormScope::head
                                    ? heads + static_cast<double>(config.query_groups())
                                    : 2 * tensor;  // on each rank
  const double head_statistics = config.qk_layernorm ? num_statistics * num_head_norms : 0;
  const double row = tokens * static_cast<double>(config.kv_channels) * layout.element_bytes;
  const HeadsKept kept = attention_heads_kept(config, layout, exchange);
  return {.input = hidden,
          .attention_norm = hidden,
          .statistics = rows * 2 * num_statistics * kFloatBytes,
          .qkv = kept.qkv * row + tokens * head_statistics / tensor * kFloatBytes,
          .core_attention = kept.result * row + tokens * heads / tensor * kFloatBytes,
          .attention_inputs = kept.attention_inputs * row,
          .query_copy = kept.query_copy * row,
          .key_elements = kept.key * row / layout.element_bytes,
          // The norms of outputs keep the outputs of both blocks.
          .residual = hidden * (config.norm_placement == NormPlacement::sandwich ? 3 : 1),
          .mlp_norm = hidden};
}

/// Sets what multi-latent attention keeps of its heads: the latents, and with norms their results;
/// q, k and the projection of which v is a view, or what takes their place over cp.
void set_latent_parts(const TransformerConfig& config, const ActivationLayout& layout,
                      CpCommType exchange, LayerActivations& parts) {
  const bool is_whole = !exchanges_result(layout, exchange),
             gathers = !is_whole && exchange == CpCommType::all_gather;
  const double latents = static_cast<double>(config.q_lora_rank + config.kv_lora_rank),
               statistics = config.qk_layernorm ? (config.q_lora_rank > 0 ? 2 : 1) : 0,
               heads = static_cast<double>(layout.tokens * config.num_attention_heads) /
                       static_cast<double>(layout.tensor_parallel),
               copies = gathers ? static_cast<double>(layout.context_parallel) : 1;
  const double q = heads * static_cast<double>(config.qk_channels()),
               v = heads * static_cast<double>(config.v_head_dim);
  const double held_by_v = is_whole ? v + heads * static_cast<double>(config.qk_head_dim) : v;
  parts.key_elements = q * copies;
  parts.query_copy = q * layout.element_bytes;
  parts.attention_inputs = (q + (q + held_by_v) * copies) * layout.element_bytes;
  parts.up_projected = is_whole ? parts.attention_inputs : 0;
  parts.qkv =
      parts.attention_inputs +
      hidden_rows(layout) * (latents * (config.qk_layernorm ? 2 : 1) * layout.element_bytes +
                             statistics * kFloatBytes);
  parts.core_attention = v * (is_whole ? 1 : 2) * layout.element_bytes + heads * kFloatBytes;
}

double expert_input_bytes(const TransformerConfig& config, const ActivationLayout& layout) {
  const std::int64_t width =
      config.moe.latent_size > 0 ? config.moe.latent_size : config.hidden_size;
  return expert_rows(config.moe, layout) * static_cast<double>(width) * layout.element_bytes;
}

/// Returns the bytes of the result of the experts' first GEMM.
double expert_fc1_bytes(const TransformerConfig& config, const ActivationLayout& layout) {
  const std::int64_t width =
      config.moe.ffn_hidden_size > 0 ? config.moe.ffn_hidden_size : config.ffn_hidden_size;
  return expert_rows(config.moe, layout) * fc1_width(config, width) /
         static_cast<double>(layout.expert_tensor_parallel) * layout.element_bytes;
}

/// Returns what an offloaded layer keeps in memory because it is small: the statistics of each norm
/// (a tensor for each kind) and the log-sum-exp of the heads.
double small_tensor_bytes(const TransformerConfig& config, double statistics,
                          const ActivationLayout& layout, std::int64_t min_elements) {
  const auto rows = static_cast<std::int64_t>(hidden_rows(layout));
  const std::int64_t lse = layout.tokens * config.num_attention_heads / layout.tensor_parallel;
  return (rows < min_elements ? statistics : 0) +
         (lse < min_elements ? kFloatBytes * static_cast<double>(lse) : 0);
}

/// Returns what of `kept` leaves memory when the nodes `offloaded` are moved. The result of
/// attention has two readers, core attention and the projection: it leaves memory when both move
/// it. Where it is exchanged over cp, each reads a tensor of its own. Memory that q, k and v are
/// views of is free when all of them have left it. Other sizes are compared with `min_elements` by
/// part, not by tensor.
double moved_part_bytes(const LayerActivations& kept, NodeSet offloaded, bool exchanges_result,
                        const ActivationLayout& layout, std::int64_t min_elements) {
  using enum LayerNode;
  const auto moves = [&](LayerNode node) { return offloaded.contains(node); };
  const auto moved = [&](bool is_moved, double bytes) {
    return is_moved && bytes / layout.element_bytes >= static_cast<double>(min_elements) ? bytes
                                                                                         : 0;
  };
  const double result = kept.core_attention;
  return moved(moves(attn_norm), kept.input) + moved(moves(qkv_linear), kept.attention_norm) +
         moved(moves(core_attn), kept.query_copy) +
         (moves(core_attn) && kept.key_elements >= static_cast<double>(min_elements)
              ? kept.attention_inputs - kept.query_copy
              : 0) +
         (exchanges_result
              ? moved(moves(core_attn), result / 2) + moved(moves(attn_proj), result / 2)
              : moved(moves(core_attn) && moves(attn_proj), result)) +
         moved(moves(mlp_norm), kept.residual) + moved(moves(mlp), kept.mlp_norm) +
         moved(moves(mlp), kept.mlp) + moved(moves(expert_fc1), kept.expert_rows) +
         moved(moves(moe_act), kept.expert_fc1);
}

}  // namespace

ActivationLayout activation_layout(const Settings& settings, const Rank& rank) {
  const TrainingConfig& training = *settings.training;
  return {.tokens = tokens_per_rank(settings, rank.cp.size),
          .tensor_parallel = rank.tp.size,
          .expert_tensor_parallel = rank.etp.size,
          .sequence_parallel = rank.sequence_parallel,
          .element_bytes = static_cast<double>(c10::elementSize(params_dtype(training))),
          .context_parallel = rank.cp.size,
          .context_head_ranks = rank.cp_a2a.size};
}

double expert_rows(const MoeConfig& moe, const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens * moe.router_topk * layout.expert_tensor_parallel) /
         static_cast<double>(layout.tensor_parallel);
}

double mlp_activation_bytes(const TransformerConfig& config, std::int64_t width,
                            const ActivationLayout& layout) {
  return static_cast<double>(layout.tokens) * fc1_width(config, width) * layout.element_bytes /
         static_cast<double>(layout.tensor_parallel);
}

double moe_activation_bytes(const TransformerConfig& config, const ActivationLayout& layout) {
  const MoeConfig& moe = config.moe;
  const double token = static_cast<double>(moe.num_experts) * kFloatBytes +
                       static_cast<double>(moe.latent_size) * layout.element_bytes;
  const double own_tokens =
      static_cast<double>(layout.tokens) / static_cast<double>(layout.tensor_parallel);
  const bool copies_input = layout.tensor_parallel > 1 && !layout.sequence_parallel;
  const double copy =
      copies_input ? static_cast<double>(config.hidden_size) * layout.element_bytes : 0;
  return expert_rows(moe, layout) * kFloatBytes + expert_input_bytes(config, layout) +
         expert_fc1_bytes(config, layout) + own_tokens * (token + copy) +
         mlp_activation_bytes(config, moe.shared_expert_intermediate_size, layout);
}

LayerActivations layer_activations(const TransformerConfig& config, std::int64_t layer,
                                   const ActivationLayout& layout) {
  const LayerKind kind = config.kind(layer);
  LayerActivations parts = attention_parts(config, layout, kind.cp_comm_type);
  if (kind.mixer == MixerKind::latent_attention)
    set_latent_parts(config, layout, kind.cp_comm_type, parts);
  // A layer of one block has one norm, which reads the layer's input.
  if (!kind.has_mixer())
    parts = {.input = parts.input, .statistics = parts.statistics / 2, .mlp_norm = parts.mlp_norm};
  if (kind.feed_forward == FeedForwardKind::none) {
    parts.statistics /= 2;
    parts.residual = parts.mlp_norm = 0;
  }
  if (kind.has_mlp()) parts.mlp = mlp_activation_bytes(config, config.ffn_hidden_size, layout);
  if (!kind.has_experts()) return parts;
  parts.shared_experts =
      mlp_activation_bytes(config, config.moe.shared_expert_intermediate_size, layout);
  parts.experts = moe_activation_bytes(config, layout) - parts.shared_experts;
  parts.expert_rows = expert_input_bytes(config, layout);
  parts.expert_fc1 = expert_fc1_bytes(config, layout);
  return parts;
}

LayerActivations kept_activations(LayerActivations layer, NodeSet recomputed) {
  using enum LayerNode;
  const auto again = [&](LayerNode node) { return recomputed.contains(node); };
  if (again(layernorm)) layer.attention_norm = layer.mlp_norm = 0;
  if (again(mla_up_proj) && layer.up_projected > 0) {
    layer.qkv -= std::exchange(layer.up_projected, 0);
    layer.attention_inputs = layer.query_copy = layer.key_elements = 0;
  }
  if (again(mlp)) layer.mlp = 0;
  if (again(moe)) layer.experts = layer.expert_rows = layer.expert_fc1 = 0;
  if (again(moe) || again(shared_experts)) layer.shared_experts = 0;
  return layer;
}

double layer_activation_bytes(const TransformerConfig& config, std::int64_t layer,
                              const ActivationLayout& layout) {
  return layer_activations(config, layer, layout).total();
}

double StageActivations::total_kept() const {
  return std::accumulate(kept.begin(), kept.end(), 0.0);
}

double StageActivations::total_offloaded() const {
  return std::accumulate(offloaded.begin(), offloaded.end(), 0.0);
}

double StageActivations::held_at(std::size_t i) const {
  const auto earlier = static_cast<std::ptrdiff_t>(group_begin[i]);
  double held =
      read_ahead[group_begin[i]] + std::accumulate(kept.begin(), kept.begin() + earlier, 0.0);
  for (std::size_t layer = group_begin[i]; layer <= i; ++layer) held += whole[layer].total();
  return held;
}

StageActivations stage_activations(const TransformerConfig& config,
                                   const std::vector<std::int64_t>& layers,
                                   const ActivationPlan& plan, const ActivationLayout& layout) {
  StageActivations stage;
  const double shares = plan.distributes_saved_activations && !layout.sequence_parallel
                            ? static_cast<double>(layout.tensor_parallel)
                            : 1;
  double before = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerKind kind = config.kind(layers[i]);
    LayerPolicy policy = plan.of(layers[i]);
    policy.offloaded &= nodes_of(kind);
    const LayerActivations& whole =
        stage.whole.emplace_back(layer_activations(config, layers[i], layout));
    const bool continues = policy.full && policy.joins_previous && i > 0 &&
                           layers[i - 1] + 1 == layers[i] && plan.of(layers[i - 1]).full;
    stage.group_begin.push_back(continues ? stage.group_begin.back() : i);
    double kept = continues ? 0 : whole.input / shares, moved = policy.offload ? kept : 0;
    if (!policy.full) {
      const LayerActivations parts = kept_activations(whole, policy.recomputed);
      kept = parts.total();
      moved = policy.offload
                  ? std::max(0.0, kept - small_tensor_bytes(config, whole.statistics, layout,
                                                            plan.min_offloaded_elements))
                  : moved_part_bytes(parts, policy.offloaded,
                                     exchanges_result(layout, kind.cp_comm_type), layout,
                                     plan.min_offloaded_elements);
    }
    stage.kept.push_back(kept - moved);
    stage.offloaded.push_back(moved);
    stage.read_ahead.push_back(before);
    before = moved;
  }
  return stage;
}

}  // namespace megatron
