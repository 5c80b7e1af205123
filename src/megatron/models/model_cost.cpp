#include "megatron/models/model_cost.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/config/moe_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"

namespace megatron {
namespace {

constexpr double kBillion = 1e9, kMegabyte = 1024.0 * 1024.0;

/// Weights by their sharding: over tp, replicated, over etp and ep.
struct Weights {
  double sharded = 0, replicated = 0, expert = 0;
  double total() const { return sharded + replicated + expert; }
};

Weights operator+(const Weights& a, const Weights& b) {
  return {a.sharded + b.sharded, a.replicated + b.replicated, a.expert + b.expert};
}
Weights operator*(double n, const Weights& w) {
  return {n * w.sharded, n * w.replicated, n * w.expert};
}

// Weights without biases: of Q, K, V and the output projection of one layer, of an MLP, of routed
// experts with `width` hidden features in total, and of the projections around them (LatentMoE). A
// channel of a latent of attention has `norm` weights besides.
double attention_weights(const ModelDimensions& d, double norm = 1) {
  if (d.kv_lora_rank > 0) {
    const double h = d.hidden_size, q_rank = d.q_lora_rank, rotated = d.qk_pos_emb_head_dim,
                 heads = d.num_attention_heads, q = heads * d.kv_channels,
                 v = heads * d.v_channels();
    return (q_rank > 0 ? q_rank * (h + q + norm) : h * q) +
           d.kv_lora_rank * (h + q - heads * rotated + v + norm) + h * rotated + v * h;
  }
  const double queries = d.num_attention_heads * (d.attention_output_gate ? 1.5 : 1.0);
  return 2.0 * d.hidden_size * d.kv_channels * (queries + d.query_groups);
}
double mlp_weights(const ModelDimensions& d, std::int64_t width) {
  return (d.gated_linear_unit ? 3.0 : 2.0) * d.hidden_size * width;
}
double expert_weights(const ModelDimensions& d, std::int64_t width) {
  const double input = d.moe_latent_size > 0 ? d.moe_latent_size : d.hidden_size;
  return mlp_weights(d, width) * (input / d.hidden_size);
}
double latent_projection_weights(const ModelDimensions& d) {
  return 2.0 * d.hidden_size * d.moe_latent_size;
}

/// Returns the multiply-adds of a token in the mixer of a recurrent layer. Those of Mamba-2 have
/// 2·hidden channels in Megatron's formula, whatever their heads are.
double recurrent_operations(const TransformerConfig& config, MixerKind mixer) {
  const RecurrentSizes sizes = config.recurrent_sizes(mixer);
  const double h = config.hidden_size, keys = sizes.key_channels(), v = sizes.value_channels(),
               heads = sizes.heads, d = 2 * h;
  if (mixer == MixerKind::mamba)
    return h * (2 * d + 2 * keys + heads) + 3.5 * d * sizes.key_dim + d * h;
  return h * (2 * keys + 2 * v + 2 * heads) + sizes.taps * (2 * keys + v) +
         4 * v * sizes.value_dim + h * v;
}

/// Returns the number of attention blocks, without those of multi-token prediction.
double num_attention_layers(const ModelDimensions& d) {
  return d.num_layers - d.num_layers_without_mixer - d.num_recurrent_layers +
         d.num_cross_attentions;
}

std::int64_t num_dense_layers(const ModelDimensions& d) {
  return d.num_layers - d.num_moe_layers - d.num_layers_without_feed_forward;
}

double norm_weights(const ModelDimensions& d) { return (d.rms_norm ? 1.0 : 2.0) * d.hidden_size; }

Weights attention_block(const ModelDimensions& d) {
  return {.sharded = attention_weights(d, d.rms_norm ? 1 : 2), .replicated = norm_weights(d)};
}

Weights mlp_block(const ModelDimensions& d) {
  return {.sharded = mlp_weights(d, d.ffn_hidden_size), .replicated = norm_weights(d)};
}

Weights expert_block(const ModelDimensions& d) {
  const double router = (d.hidden_size + (d.moe_router_bias ? 1 : 0)) * d.num_experts;
  return {.sharded = mlp_weights(d, d.moe_shared_expert_ffn_hidden_size),
          .replicated = norm_weights(d) + router + latent_projection_weights(d),
          .expert = expert_weights(d, d.moe_ffn_hidden_size * d.num_experts)};
}

double active_moe_weights(const ModelDimensions& d) {
  return expert_weights(d, d.moe_ffn_hidden_size * d.moe_topk) +
         mlp_weights(d, d.moe_shared_expert_ffn_hidden_size) + latent_projection_weights(d);
}

double in_flight_share(const MemoryLayout& layout) {
  const double stages = layout.pipeline_parallel;
  if (layout.virtual_pipeline_chunks > 0)
    return 1 + (stages - 1) / (stages * layout.virtual_pipeline_chunks);
  if (layout.pipeline_parallel == 1 || layout.num_microbatches == 0) return 1;
  return std::min(1.0, layout.num_microbatches / stages);
}

}  // namespace

ModelDimensions model_dimensions(const TransformerConfig& config, std::int64_t padded_vocab_size) {
  const bool is_hybrid = !config.hybrid_layer_pattern.empty();
  const std::int64_t num_layers = is_hybrid ? config.num_all_layers() : config.num_layers;
  ModelDimensions dimensions{.num_layers = num_layers,
                             .hidden_size = config.hidden_size,
                             .num_attention_heads = config.num_attention_heads,
                             .query_groups = config.query_groups(),
                             .kv_channels = config.qk_channels(),
                             .v_head_dim = config.v_channels(),
                             .attention_output_gate = config.attention_output_gate,
                             .ffn_hidden_size = config.ffn_hidden_size,
                             .gated_linear_unit = config.gated_linear_unit,
                             .rms_norm = !config.has_norm_bias(),
                             .untied_output = config.untie_embeddings_and_output_weights,
                             .has_logits = config.has_lm_head(),
                             .padded_vocab_size = padded_vocab_size,
                             .num_mtp_layers = is_hybrid ? 0 : config.mtp_num_layers,
                             .num_hybrid_depths = is_hybrid ? config.mtp_num_layers : 0,
                             .mtp_layers_are_moe = config.kind(config.num_layers).has_experts()};
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const LayerKind kind = config.kind(layer);
    dimensions.num_moe_layers += kind.has_experts() ? 1 : 0;
    dimensions.num_cross_attentions += kind.has_cross_attention ? 1 : 0;
    dimensions.num_layers_without_mixer += kind.has_mixer() ? 0 : 1;
    dimensions.num_layers_without_feed_forward +=
        kind.feed_forward == FeedForwardKind::none ? 1 : 0;
    if (!kind.is_recurrent()) continue;
    const RecurrentSizes sizes = config.recurrent_sizes(kind.mixer);
    const double h = config.hidden_size;
    dimensions.num_recurrent_layers += 1;
    dimensions.recurrent_operations += recurrent_operations(config, kind.mixer);
    dimensions.recurrent_weights +=
        h * (sizes.in_proj_rows() + sizes.value_channels()) + sizes.taps * sizes.conv_channels();
  }
  if (config.multi_latent_attention) {
    dimensions.q_lora_rank = config.q_lora_rank;
    dimensions.kv_lora_rank = config.kv_lora_rank;
    dimensions.qk_pos_emb_head_dim = config.qk_pos_emb_head_dim;
  }
  const MoeConfig& moe = config.moe;
  if (moe.num_experts == 0) return dimensions;
  dimensions.num_experts = moe.num_experts;
  dimensions.moe_topk = moe.router_topk;
  dimensions.moe_ffn_hidden_size =
      moe.ffn_hidden_size > 0 ? moe.ffn_hidden_size : config.ffn_hidden_size;
  dimensions.moe_shared_expert_ffn_hidden_size = moe.shared_expert_intermediate_size;
  dimensions.moe_latent_size = moe.latent_size;
  dimensions.moe_router_bias = config.add_bias_linear;
  return dimensions;
}

double num_floating_point_operations(const ModelDimensions& d, double num_tokens,
                                     double num_squared_tokens) {
  const double hidden = d.hidden_size, mtp = d.num_mtp_layers;
  const double layers = num_attention_layers(d) + mtp,
               num_heads = 1 + mtp + static_cast<double>(d.num_hybrid_depths);
  const double moe_layers = d.num_moe_layers + (d.mtp_layers_are_moe ? mtp : 0);
  const double dense_layers = num_dense_layers(d) + (d.mtp_layers_are_moe ? 0 : mtp);
  const double mlp =
      mlp_weights(d, d.ffn_hidden_size) * dense_layers + active_moe_weights(d) * moe_layers;
  const double mtp_projection = mtp * (3 * hidden + 2 * hidden * hidden);
  // The mean width of the queries and values of all heads.
  const double projection = (d.kv_channels + d.v_channels()) / 2.0 * d.num_attention_heads;
  const double logits = d.has_logits ? hidden * d.padded_vocab_size * num_heads : 0;
  const double linear =
      mlp + attention_weights(d) * layers + d.recurrent_operations + mtp_projection + logits;
  return 6 * num_tokens * linear + 6 * num_squared_tokens * projection * layers;
}

double num_floating_point_operations(const ModelDimensions& dimensions, std::int64_t batch_size,
                                     std::int64_t sequence_length) {
  const double tokens = batch_size * sequence_length;
  return num_floating_point_operations(dimensions, tokens, tokens * sequence_length);
}

SampleFlops sample_flops(const ModelDimensions& dimensions, std::int64_t num_sequences,
                         std::int64_t sequence_length) {
  const double tokens = static_cast<double>(num_sequences * sequence_length),
               squared_tokens = tokens * static_cast<double>(sequence_length);
  // The formula is linear in Σ s² and counts half of it. Doubling the squared token count therefore
  // gives full attention.
  return {.causal = num_floating_point_operations(dimensions, tokens, squared_tokens),
          .full = num_floating_point_operations(dimensions, tokens, 2 * squared_tokens)};
}

ParameterCount count_parameters(const ModelDimensions& d, const MemoryLayout& layout) {
  const double stages = layout.pipeline_parallel, tensor = layout.tensor_parallel;
  const double experts = layout.expert_tensor_parallel * layout.expert_parallel;
  const Weights block = num_attention_layers(d) * attention_block(d) +
                        Weights{.sharded = d.recurrent_weights,
                                .replicated = d.num_recurrent_layers * norm_weights(d)} +
                        num_dense_layers(d) * mlp_block(d) + d.num_moe_layers * expert_block(d) +
                        Weights{.replicated = norm_weights(d)};
  const Weights mtp = d.num_mtp_layers * (attention_block(d) +
                                          (d.mtp_layers_are_moe ? expert_block(d) : mlp_block(d)));
  const double embedding = d.hidden_size * d.padded_vocab_size;
  const double embeddings_here =
      d.untied_output && layout.pipeline_parallel == 1 ? 2 * embedding : embedding;
  const Weights stage = 1 / stages * block;
  const auto on_rank = [&](const Weights& w) {
    return w.sharded / tensor + w.replicated + w.expert / experts;
  };

  ParameterCount count;
  count.transformer_block = block.total();
  count.mtp_block = mtp.total();
  count.embedding_layers = d.untied_output ? 2 * embedding : embedding;
  count.expert_most_loaded = (stage.expert + mtp.expert) / experts;
  count.most_loaded_shard = on_rank(stage) + on_rank(mtp) + embeddings_here / tensor;
  count.dense_most_loaded = count.most_loaded_shard - count.expert_most_loaded;
  count.other_shards = layout.pipeline_parallel > 1 ? on_rank(stage) : 0;
  return count;
}

TheoreticalMemory theoretical_memory(const ModelDimensions& d, const MemoryLayout& layout) {
  const ParameterCount count = count_parameters(d, layout);
  const auto bytes_per_parameter = [&](std::int64_t replicas) {
    return layout.use_distributed_optimizer ? 6.0 + 12.0 / replicas : 18.0;
  };
  const double stages = layout.pipeline_parallel, tensor = layout.tensor_parallel;
  const double tokens = layout.sequence_length * layout.micro_batch_size;
  const double hidden = d.hidden_size, vocabulary = d.padded_vocab_size;
  const bool is_split = layout.sequence_parallel_with_selective_recompute;
  const double per_layer = is_split ? tokens * (18 * hidden + 4 * d.ffn_hidden_size)
                                    : tokens * hidden * (10 + 24 / tensor);
  double activations = per_layer * d.num_layers + 8 * tokens * stages + tokens * hidden * stages;
  activations *= in_flight_share(layout);
  if (layout.pipeline_parallel == 1)
    activations +=
        is_split ? 4 * tokens * (hidden + vocabulary) : 2 * tokens * (vocabulary / tensor + hidden);

  TheoreticalMemory memory;
  memory.weight_and_optimizer_bytes =
      count.dense_most_loaded * bytes_per_parameter(layout.data_parallel) +
      count.expert_most_loaded * bytes_per_parameter(layout.expert_data_parallel);
  memory.activation_bytes = is_split ? activations / tensor : activations * 1.05;
  memory.activation_per_layer_bytes = is_split ? per_layer / tensor : per_layer;
  memory.in_flight_microbatches = std::ceil(in_flight_share(layout) * stages);
  return memory;
}

std::string theoretical_memory_report(const ModelDimensions& d, const MemoryLayout& layout,
                                      bool verbose) {
  const ParameterCount count = count_parameters(d, layout);
  const TheoreticalMemory memory = theoretical_memory(d, layout);
  std::string text;
  const auto add = [&](const char* part, double number, int digits, const char* margin = "") {
    text += format("Number of parameters in %s in billions: %s%.*f\n", part, margin, digits,
                   number / kBillion);
  };
  if (verbose) {
    add("transformer block", count.transformer_block, 2, " ");
    if (d.num_mtp_layers > 0) add("mtp block", count.mtp_block, 2, " ");
    add("embedding layers", count.embedding_layers, 2);
    text += format("Total number of parameters in billions: %.2f\n", count.total() / kBillion);
    add("most loaded shard", count.most_loaded_shard, 4);
    if (layout.pipeline_parallel > 1) add("other shards", count.other_shards, 4);
    text += format("Activation memory footprint per transformer layer: %.1f MB\n",
                   memory.activation_per_layer_bytes / kMegabyte);
    if (layout.virtual_pipeline_chunks > 0)
      text += format("Memory penalty from interleaved schedule: %.2f\n", in_flight_share(layout));
    if (layout.pipeline_parallel > 1 || layout.virtual_pipeline_chunks > 0)
      text += format("Number of in-flight microbatches: %.0f\n", memory.in_flight_microbatches);
  }
  text += format(
      "Theoretical memory footprints: weight and optimizer=%.2f MB, activation=%.2f MB, "
      "total=%.2f MB\n\n",
      memory.weight_and_optimizer_bytes / kMegabyte, memory.activation_bytes / kMegabyte,
      (memory.weight_and_optimizer_bytes + memory.activation_bytes) / kMegabyte);
  return text;
}

}  // namespace megatron
