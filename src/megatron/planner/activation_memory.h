// Formulas for the activations that the layers of a rank keep from forward until backward. They
// follow what our operators save, not Korthikanti et al. 2022 as theoretical_memory() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/config/cp_comm_type.h"

namespace megatron {

struct MoeConfig;
struct Rank;
struct Settings;
struct TransformerConfig;

/// What the activations of a layer depend on besides the model.
struct ActivationLayout {
  /// Tokens of one microbatch on one rank of cp, before sequence parallelism divides them.
  std::int64_t tokens = 0;
  std::int64_t tensor_parallel = 1, expert_tensor_parallel = 1;
  bool sequence_parallel = false;
  double element_bytes = 4;  ///< of the dtype that layers compute with
  std::int64_t context_parallel = 1;
  std::int64_t context_head_ranks = 1;  ///< with a2a+p2p: ranks of cp that divide heads

  /// Returns the number of ranks that divide the heads of a layer's attention; 1 if none do.
  std::int64_t head_ranks(CpCommType type) const {
    if (type == CpCommType::a2a) return context_parallel;
    return type == CpCommType::a2a_p2p ? context_head_ranks : 1;
  }
};

/// Returns the layout of a microbatch of a run with these settings.
ActivationLayout activation_layout(const Settings& settings, const Rank& rank);

/// Returns the number of rows that the experts of one rank process per microbatch when the router
/// balances them: tokens · topk · etp ÷ tp. The ranks of tp dispatch different tokens, with or
/// without sequence parallelism, and etp ranks process the same rows.
double expert_rows(const MoeConfig& moe, const ActivationLayout& layout);

/// Returns the bytes that a dense MLP with `width` hidden features keeps besides its input: the
/// result of the first GEMM. Backward recomputes the activation function from it.
double mlp_activation_bytes(const TransformerConfig& config, std::int64_t width,
                            const ActivationLayout& layout);

/// Returns the bytes that an MoE layer keeps besides its input. Per row of expert_rows(): the
/// dispatched input (h or the latent size), the result of the first GEMM (width of an expert ÷ etp,
/// twice that if gated) and the float32 probability. Per token: the float32 logits of the router,
/// the shared experts' part as of a dense MLP, the combined rows of latent experts, and without
/// sequence parallelism a copy of the tp rank's share of the input. Buffers of the exchange and the
/// router's auxiliary losses are not counted.
double moe_activation_bytes(const TransformerConfig& config, const ActivationLayout& layout);

/// Bytes that a layer keeps of one microbatch, by part. Recomputation leaves out some of them.
struct LayerActivations {
  double input = 0;             ///< the residual stream, which the first norm reads
  double attention_norm = 0;    ///< its result, which the QKV GEMM reads
  double statistics = 0;        ///< of both norms
  double qkv = 0;               ///< the fused q|k|v, copies of q and k, norms of heads
  double core_attention = 0;    ///< the result, which the projection reads, and the log-sum-exp
  double attention_inputs = 0;  ///< part of qkv: what only attention keeps
  double query_copy = 0;        ///< part of attention_inputs: a q that is no view of q|k|v
  double key_elements = 0;      ///< number of elements of k, and of v
  double up_projected = 0;      ///< part of qkv: what mla_up_proj computes again
  double residual = 0;          ///< the stream after attention, which the second norm reads
  double mlp_norm = 0;          ///< its result, which the MLP or the router reads
  double mlp = 0;               ///< mlp_activation_bytes()
  double experts = 0;           ///< moe_activation_bytes() without the shared experts
  double expert_rows = 0;       ///< part of experts: the dispatched input
  double expert_fc1 = 0;        ///< part of experts: the result of the first GEMM
  double shared_experts = 0;
  /// Returns what the attention block keeps, with both norms: per token the inputs and results of
  /// the norms (4·h), the fused q, k, v, of which v stays a view, copies of q and k where rotary
  /// positions, query groups or their norms (input and result) make them, the result of attention,
  /// and in float32 the log-sum-exp of each head and the statistics of the norms. Over cp, the
  /// layer's exchange says what takes the place of q, k and v: with p2p nothing, with all_gather
  /// the keys and values of the whole sequence, with a2a and a2a+p2p the exchanged heads. In these
  /// three the result also exists in the order of its attention.
  double attention() const {
    return input + attention_norm + statistics + qkv + core_attention + residual + mlp_norm;
  }
  /// Returns what the feed-forward block keeps besides its input.
  double feed_forward() const { return mlp + experts + shared_experts; }
  double total() const { return attention() + feed_forward(); }
};

/// Returns what layer `layer` (0-based) keeps without recomputation.
LayerActivations layer_activations(const TransformerConfig& config, std::int64_t layer,
                                   const ActivationLayout& layout);

/// Returns the parts that a layer still keeps when the nodes `recomputed` are computed again:
/// - layernorm: not the results of the norms, which follow from the residual streams
/// - mla_up_proj: not the queries, keys and values of multi-latent attention
/// - mlp, moe: only the input of the block; shared_experts: only theirs
/// Layers that are full are for StageActivations. Core attention and activation functions are
/// recomputed by their backward kernels anyway.
LayerActivations kept_activations(LayerActivations layer, NodeSet recomputed);

/// Returns the bytes that layer `layer` (0-based) keeps of one microbatch.
double layer_activation_bytes(const TransformerConfig& config, std::int64_t layer,
                              const ActivationLayout& layout);

/// What the layers of a pipeline stage keep of one microbatch. A group of layers that is recomputed
/// as a whole keeps the input of its first layer; during its backward, all that its layers keep
/// without recomputation is held again.
struct StageActivations {
  std::vector<LayerActivations> whole;   ///< without recomputation, in the order of the layers
  std::vector<double> kept;              ///< by each layer from forward to backward
  std::vector<std::size_t> group_begin;  ///< first layer of a layer's group; itself without a group
  /// What the layer before each layer has offloaded. It is read back while the layer runs backward.
  std::vector<double> read_ahead;
  std::vector<double> offloaded;  ///< by each layer, outside memory
  double total_kept() const;
  double total_offloaded() const;
  /// Returns the bytes held when the feed-forward block of layer `i` runs backward: what earlier
  /// layers keep, and all that the layer and its group need.
  double held_at(std::size_t i) const;
};

/// `layers` are 0-based and ascending.
StageActivations stage_activations(const TransformerConfig& config,
                                   const std::vector<std::int64_t>& layers,
                                   const ActivationPlan& plan, const ActivationLayout& layout);

}  // namespace megatron
