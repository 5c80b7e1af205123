// The activations that the layers of a rank keep from forward until backward. They follow what our
// operators save (layer_trace.h), not Korthikanti et al. 2022 as theoretical_memory() does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatron/config/activation_plan.h"
#include "megatron/config/cp_comm_type.h"
#include "megatron/planner/layer_trace.h"

namespace megatron {

struct MoeConfig;
struct Rank;
struct Settings;
struct TransformerConfig;

/// What the buffers of a layer depend on besides the model.
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

/// Returns the bytes of the hidden rows of a rank, of which sequence parallelism holds a slice.
double hidden_bytes(const TransformerConfig& config, const ActivationLayout& layout,
                    bool is_sliced = true);

/// Returns the number of rows that the experts of one rank process per microbatch when the router
/// balances them: tokens · topk · etp ÷ tp. The ranks of tp dispatch different tokens, with or
/// without sequence parallelism, and etp ranks process the same rows.
double expert_rows(const MoeConfig& moe, const ActivationLayout& layout);

/// What the layers of a pipeline stage keep of one microbatch. A group of layers that is recomputed
/// as a whole keeps the input of its first layer; during its backward, all that its layers keep
/// without recomputation is held again.
struct StageActivations {
  std::vector<LayerTrace> whole;  ///< without recomputation and offload, in the order of the layers
  std::vector<double> kept;       ///< by each layer from forward to backward
  std::vector<std::size_t> group_begin;  ///< first layer of a layer's group; itself without a group
  /// What the layer before each layer has offloaded. It is read back while the layer runs backward.
  std::vector<double> read_ahead;
  std::vector<double> offloaded;  ///< by each layer, outside memory
  double total_kept() const;
  double total_offloaded() const;
  /// Returns the bytes held when backward of layer `i` begins: what earlier layers keep, and all
  /// that the layer and its group need.
  double held_at(std::size_t i) const;
};

/// Returns whether layer layers[i] is recomputed together with the layer before it (LayerPolicy).
/// `layers` are those of a pipeline rank, 0-based and ascending.
bool continues_group(const ActivationPlan& plan, const std::vector<std::int64_t>& layers,
                     std::size_t i);

/// `layers` are 0-based and ascending.
StageActivations stage_activations(const Settings& settings, const Rank& rank,
                                   const std::vector<std::int64_t>& layers,
                                   const ActivationPlan& plan, LayerTraces& traces);

}  // namespace megatron
