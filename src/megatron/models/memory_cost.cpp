// Parameter counts and theoretical memory of a layout, and the lines that Megatron prints about
// them.
#include <algorithm>
#include <cmath>

#include "megatron/base/format.h"
#include "megatron/models/model_cost.h"

namespace megatron {
namespace {

constexpr double kBillion = 1e9;
constexpr double kMegabyte = 1024.0 * 1024.0;

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

double norm_weights(const ModelDimensions& d) {
  return (d.rms_norm ? 1.0 : 2.0) * static_cast<double>(d.hidden_size);
}

Weights attention_block(const ModelDimensions& d) {
  return {.sharded = d.attention_weights(d.rms_norm ? 1 : 2), .replicated = norm_weights(d)};
}

Weights mlp_block(const ModelDimensions& d) {
  return {.sharded = d.mlp_weights(d.ffn_hidden_size), .replicated = norm_weights(d)};
}

Weights expert_block(const ModelDimensions& d) {
  const double router = static_cast<double>(d.hidden_size + (d.moe_router_bias ? 1 : 0)) *
                        static_cast<double>(d.num_experts);
  return {.sharded = d.mlp_weights(d.moe_shared_expert_ffn_hidden_size),
          .replicated = norm_weights(d) + router + d.latent_projection_weights(),
          .expert = d.expert_weights(d.moe_ffn_hidden_size * d.num_experts)};
}

double in_flight_share(const MemoryLayout& layout) {
  const double stages = static_cast<double>(layout.pipeline_parallel);
  if (layout.virtual_pipeline_chunks > 0)
    return 1 + (stages - 1) / (stages * static_cast<double>(layout.virtual_pipeline_chunks));
  if (layout.pipeline_parallel == 1 || layout.num_microbatches == 0) return 1;
  return std::min(1.0, static_cast<double>(layout.num_microbatches) / stages);
}

}  // namespace

ParameterCount count_parameters(const ModelDimensions& d, const MemoryLayout& layout) {
  const double stages = static_cast<double>(layout.pipeline_parallel),
               tensor = static_cast<double>(layout.tensor_parallel);
  const double experts =
      static_cast<double>(layout.expert_tensor_parallel * layout.expert_parallel);
  const Weights block =
      static_cast<double>(d.num_layers - d.num_layers_without_mixer) * attention_block(d) +
      static_cast<double>(d.num_dense_layers()) * mlp_block(d) +
      static_cast<double>(d.num_moe_layers) * expert_block(d) +
      Weights{.replicated = norm_weights(d)};
  const Weights mtp =
      static_cast<double>(d.num_mtp_layers) *
      (attention_block(d) + (d.mtp_layers_are_moe ? expert_block(d) : mlp_block(d)));
  const double embedding =
      static_cast<double>(d.hidden_size) * static_cast<double>(d.padded_vocab_size);
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
    return layout.use_distributed_optimizer ? 6.0 + 12.0 / static_cast<double>(replicas) : 18.0;
  };
  const double stages = static_cast<double>(layout.pipeline_parallel),
               tensor = static_cast<double>(layout.tensor_parallel);
  const double tokens =
      static_cast<double>(layout.sequence_length) * static_cast<double>(layout.micro_batch_size);
  const double hidden = static_cast<double>(d.hidden_size),
               vocabulary = static_cast<double>(d.padded_vocab_size);
  const bool is_split = layout.sequence_parallel_with_selective_recompute;
  const double per_layer = is_split
                               ? tokens * (18 * hidden + 4 * static_cast<double>(d.ffn_hidden_size))
                               : tokens * hidden * (10 + 24 / tensor);
  double activations = per_layer * static_cast<double>(d.num_layers) + 8 * tokens * stages +
                       tokens * hidden * stages;
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
  if (verbose) {
    text += format("Number of parameters in transformer block in billions: % .2f\n",
                   count.transformer_block / kBillion);
    if (d.num_mtp_layers > 0)
      text += format("Number of parameters in mtp block in billions: % .2f\n",
                     count.mtp_block / kBillion);
    text += format("Number of parameters in embedding layers in billions: %.2f\n",
                   count.embedding_layers / kBillion);
    text += format("Total number of parameters in billions: %.2f\n", count.total() / kBillion);
    text += format("Number of parameters in most loaded shard in billions: %.4f\n",
                   count.most_loaded_shard / kBillion);
    if (layout.pipeline_parallel > 1)
      text += format("Number of parameters in other shards in billions: %.4f\n",
                     count.other_shards / kBillion);
    text += format("Activation memory footprint per transformer layer: %.1f MB\n",
                   memory.activation_per_layer_bytes / kMegabyte);
    if (layout.virtual_pipeline_chunks > 0)
      text += format("Memory penalty from interleaved schedule: %.2f\n", in_flight_share(layout));
    if (layout.pipeline_parallel > 1 || layout.virtual_pipeline_chunks > 0) {
      text += format("Number of in-flight microbatches: %.0f\n", memory.in_flight_microbatches);
    }
  }
  text += format(
      "Theoretical memory footprints: weight and optimizer=%.2f MB, activation=%.2f MB, "
      "total=%.2f MB\n\n",
      memory.weight_and_optimizer_bytes / kMegabyte, memory.activation_bytes / kMegabyte,
      (memory.weight_and_optimizer_bytes + memory.activation_bytes) / kMegabyte);
  return text;
}

}  // namespace megatron
