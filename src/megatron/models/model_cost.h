// Megatron's estimates of a model's parameters, floating-point operations and memory, as pure
// functions. Logs and throughput figures use them. The exact number of weights is
// ParamStore::num_parameters.
#pragma once

#include <cstdint>
#include <string>

namespace megatron {

struct TransformerConfig;

/// The dimensions of a model that the formulas use.
struct ModelDimensions {
  std::int64_t num_layers = 0;
  std::int64_t hidden_size = 0;
  std::int64_t num_attention_heads = 0, query_groups = 0;
  std::int64_t kv_channels = 0;  ///< of a head's query and key
  std::int64_t v_head_dim = 0;   ///< channels of a head's value; 0: kv_channels
  bool attention_output_gate = false;
  /// Multi-latent attention: the sizes of its latents, and the rotated ones of kv_channels.
  std::int64_t q_lora_rank = 0, kv_lora_rank = 0, qk_pos_emb_head_dim = 0;
  std::int64_t ffn_hidden_size = 0;
  bool gated_linear_unit = false;
  bool rms_norm = false;  ///< or another norm without biases
  bool untied_output = false;
  bool has_logits = true;  ///< the head projects onto the vocabulary
  std::int64_t padded_vocab_size = 0;

  std::int64_t num_moe_layers = 0;        ///< among num_layers
  std::int64_t num_cross_attentions = 0;  ///< blocks besides, in layers among num_layers
  /// Layers of one block among num_layers: only a feed-forward block, and only a mixer.
  std::int64_t num_layers_without_mixer = 0, num_layers_without_feed_forward = 0;
  /// Layers among num_layers with a recurrent mixer; the weights of all of these mixers, and the
  /// multiply-adds of a token in them as Megatron counts them.
  std::int64_t num_recurrent_layers = 0;
  double recurrent_weights = 0, recurrent_operations = 0;
  std::int64_t num_experts = 0, moe_topk = 0, moe_ffn_hidden_size = 0;
  std::int64_t moe_shared_expert_ffn_hidden_size = 0;
  std::int64_t moe_latent_size = 0;  ///< width of the experts' inputs; 0: hidden_size
  bool moe_router_bias = false;
  std::int64_t num_mtp_layers = 0;  ///< multi-token prediction depth, in addition to num_layers
  /// Depths of a hybrid pattern, whose layers num_layers counts.
  std::int64_t num_hybrid_depths = 0;
  bool mtp_layers_are_moe = false;
  std::int64_t v_channels() const { return v_head_dim > 0 ? v_head_dim : kv_channels; }
};

/// Returns the dimensions of a resolved configuration.
ModelDimensions model_dimensions(const TransformerConfig& config, std::int64_t padded_vocab_size);

/// Returns the forward and backward operations of one step over `num_tokens` tokens with Σ
/// (sequence length)² = `num_squared_tokens`. A multiply-add counts 2, backward counts twice the
/// forward, causal attention counts half, and full activation recomputation does not count.
double num_floating_point_operations(const ModelDimensions& dimensions, double num_tokens,
                                     double num_squared_tokens);
/// Returns the operations of a step over `batch_size` sequences of `sequence_length` tokens.
double num_floating_point_operations(const ModelDimensions& dimensions, std::int64_t batch_size,
                                     std::int64_t sequence_length);

/// Model FLOPs of one sample, forward and backward.
struct SampleFlops {
  double causal = 0;  ///< Megatron-LM's count, without the masked half of attention
  /// PaLM's count (arXiv 2204.02311, appendix B): 6N + 12·L·H·Q·T per token, all scores counted
  double full = 0;
};

/// Returns the FLOPs of a sample of `num_sequences` sequences, such as the choices of a question.
SampleFlops sample_flops(const ModelDimensions& dimensions, std::int64_t num_sequences,
                         std::int64_t sequence_length);

/// The layout of a run, as far as memory depends on it.
struct MemoryLayout {
  std::int64_t tensor_parallel = 1, pipeline_parallel = 1, data_parallel = 1;
  std::int64_t expert_parallel = 1, expert_tensor_parallel = 1, expert_data_parallel = 1;
  std::int64_t virtual_pipeline_chunks = 0;  ///< 0 means that the schedule is not interleaved
  bool use_distributed_optimizer = false;
  bool sequence_parallel_with_selective_recompute = false;
  std::int64_t micro_batch_size = 1, sequence_length = 0;
  std::int64_t num_microbatches = 0;  ///< 0 means unknown: enough to fill the pipeline
};

/// Weights as Megatron counts them: matrices, norms, routers and embeddings, without biases of
/// linear layers and position embeddings.
struct ParameterCount {
  double transformer_block = 0, mtp_block = 0, embedding_layers = 0;
  double most_loaded_shard = 0;  ///< first pipeline stage of one tensor-parallel rank
  double other_shards = 0;       ///< 0 without pipeline parallelism
  /// Part of most_loaded_shard that is replicated over data_parallel.
  double dense_most_loaded = 0;
  /// Part of most_loaded_shard that is replicated over expert_data_parallel.
  double expert_most_loaded = 0;
  double total() const { return transformer_block + mtp_block + embedding_layers; }
};

ParameterCount count_parameters(const ModelDimensions& dimensions, const MemoryLayout& layout);

/// Estimated bytes per rank.
struct TheoreticalMemory {
  /// bf16 weights, fp32 gradients and Adam state of the most loaded rank
  double weight_and_optimizer_bytes = 0;
  double activation_bytes = 0;  ///< first pipeline stage
  double activation_per_layer_bytes = 0;
  double in_flight_microbatches = 0;
};

/// Returns the theoretical memory by Korthikanti et al. 2022, table 2, as Megatron applies it.
TheoreticalMemory theoretical_memory(const ModelDimensions& dimensions, const MemoryLayout& layout);

/// Returns the lines that Megatron prints. The last is "Theoretical memory footprints: weight and
/// optimizer=… MB, activation=… MB, total=… MB\n".
std::string theoretical_memory_report(const ModelDimensions& dimensions, const MemoryLayout& layout,
                                      bool verbose);

}  // namespace megatron
