// What a model costs: Megatron's parameter counts, floating-point operations and theoretical memory
// as pure functions. They are estimates that logs and throughput figures are made of; the exact
// number of weights is ParamStore::num_parameters.
#pragma once

#include <cstdint>
#include <string>

#include "megatron/config/transformer_config.h"

namespace megatron {

/// The dimensions that the formulas see.
struct ModelDimensions {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0, query_groups = 0, kv_channels = 0;
  std::int64_t ffn_hidden_size = 0;
  bool gated_linear_unit = false;
  bool rms_norm = false;
  bool untied_output = false;
  std::int64_t padded_vocab_size = 0;

  std::int64_t num_moe_layers = 0;  ///< of num_layers; the rest are dense
  std::int64_t num_experts = 0, moe_topk = 0, moe_ffn_hidden_size = 0;
  std::int64_t moe_shared_expert_ffn_hidden_size = 0;
  std::int64_t num_mtp_layers = 0;  ///< multi-token prediction depth, on top of num_layers
  bool mtp_layers_are_moe = false;

  /// Weights of Q, K, V and the output projection of one layer, without biases.
  double attention_weights() const;
  /// Weights of an MLP with `width` hidden features, without biases.
  double mlp_weights(std::int64_t width) const;
};

ModelDimensions model_dimensions(const TransformerConfig& config, std::int64_t padded_vocab_size);

/// A Mamba hybrid: counts of each kind of layer in its pattern and Mamba's dimensions (inner width
/// 2·hidden).
struct HybridDimensions {
  ModelDimensions model;  ///< num_layers and num_moe_layers are not used
  std::int64_t num_attention_layers = 0, num_mamba_layers = 0, num_mlp_layers = 0,
               num_moe_layers = 0;
  std::int64_t mamba_state_dim = 128, mamba_head_dim = 64, mamba_num_groups = 8;
  std::int64_t mamba_num_heads = 0;  ///< 0: 2·hidden / mamba_head_dim
};

/// Forward and backward operations of one step over `num_tokens` tokens with Σ (sequence length)² =
/// `num_squared_tokens`: 2 per multiply-add, backward twice the forward, causal attention counted
/// half, full activation recomputation not counted.
double num_floating_point_operations(const ModelDimensions& dimensions, double num_tokens,
                                     double num_squared_tokens);
double num_floating_point_operations(const HybridDimensions& dimensions, double num_tokens,
                                     double num_squared_tokens);
/// The same for `batch_size` sequences of `sequence_length` tokens.
double num_floating_point_operations(const ModelDimensions& dimensions, std::int64_t batch_size,
                                     std::int64_t sequence_length);

/// How a run is laid out, as far as memory depends on it.
struct MemoryLayout {
  std::int64_t tensor_parallel = 1, pipeline_parallel = 1, data_parallel = 1;
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 1, expert_data_parallel = 1;
  std::int64_t virtual_pipeline_chunks = 0;  ///< 0: schedule not interleaved
  bool use_distributed_optimizer = false;
  bool sequence_parallel_with_selective_recompute = false;
  std::int64_t micro_batch_size = 1, sequence_length = 0;
  std::int64_t num_microbatches = 0;  ///< 0: unknown, taken as enough to fill the pipeline
};

/// Weights as Megatron counts them: matrices, norms, routers and embeddings; no biases of linear
/// layers, no position embeddings.
struct ParameterCount {
  double transformer_block = 0, mtp_block = 0, embedding_layers = 0;
  double most_loaded_shard = 0;   ///< first pipeline stage of one tensor-parallel rank
  double other_shards = 0;        ///< 0 without pipeline parallelism
  double dense_most_loaded = 0;   ///< of most_loaded_shard: replicated over data_parallel
  double expert_most_loaded = 0;  ///< of most_loaded_shard: replicated over expert_data_parallel
  double total() const { return transformer_block + mtp_block + embedding_layers; }
};

ParameterCount count_parameters(const ModelDimensions& dimensions, const MemoryLayout& layout);

struct TheoreticalMemory {
  double weight_and_optimizer_bytes =
      0;  ///< bf16 weights, fp32 gradients and Adam state on the most loaded rank
  double activation_bytes = 0;  ///< first pipeline stage
  double activation_per_layer_bytes = 0;
  double in_flight_microbatches = 0;
};

/// Korthikanti et al. 2022, table 2, as Megatron applies it.
TheoreticalMemory theoretical_memory(const ModelDimensions& dimensions, const MemoryLayout& layout);

/// Megatron's printed lines; the last is "Theoretical memory footprints: weight and optimizer=… MB,
/// activation=… MB, total=… MB\n".
std::string theoretical_memory_report(const ModelDimensions& dimensions, const MemoryLayout& layout,
                                      bool verbose);

}  // namespace megatron
