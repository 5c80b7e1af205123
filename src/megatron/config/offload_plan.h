// Which activations of each layer wait in another memory between forward and backward.
#pragma once

#include <cstdint>
#include <vector>

#include "megatron/config/pipeline_layout.h"

namespace megatron {

struct MemoryConfig;
struct OffloadConfig;

/// Smaller tensors stay resident: moving them costs more than it saves.
inline constexpr std::int64_t kSmallestOffload = 16 * 1024;

/// What is offloaded of one layer: all that it keeps, or what parts of it keep.
struct LayerOffload {
  bool whole = false;
  bool attn_norm = false;   ///< input of the attention's norm
  bool qkv_linear = false;  ///< input of the projection to queries, keys and values
  bool core_attn = false;   ///< queries, keys, values and output of attention
  bool attn_proj = false;   ///< input of the output projection
  bool mlp_norm = false;    ///< input of the MLP's norm
  bool mlp = false;         ///< of a dense MLP
  bool expert_fc1 = false;  ///< rows of the experts
  bool moe_act = false;     ///< input of the experts' activation

  bool any() const { return *this != LayerOffload{}; }
  bool operator==(const LayerOffload&) const = default;
};

struct OffloadPlan {
  std::vector<LayerOffload> layers;  ///< of the whole model; empty: nothing is offloaded
  std::int64_t min_elements = 0;     ///< smaller tensors stay

  LayerOffload of(std::int64_t layer) const {
    return layers.empty() ? LayerOffload{} : layers.at(static_cast<std::size_t>(layer));
  }
};

/// Returns for each layer of a pipeline rank, in the order of its chunks, whether its weights are
/// offloaded (--cpu-offloading-weights).
std::vector<bool> layers_with_offloaded_weights(const OffloadConfig& config,
                                                const PipelineLayout& layout,
                                                std::int64_t pipeline_rank);

/// Returns the plan that the flags describe. The flags must be valid.
OffloadPlan offload_plan(const MemoryConfig& config, const PipelineLayout& layout);

}  // namespace megatron
