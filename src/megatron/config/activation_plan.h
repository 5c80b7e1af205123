// What each layer does with its activations between forward and backward. Flags say it, or a text
// that a memory budget chooses, --activation-plan gives, and checkpoints keep.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/config/layer_nodes.h"
#include "megatron/config/pipeline_layout.h"

namespace megatron {

struct MemoryConfig;
struct OffloadConfig;

/// What one layer does: it keeps its activations, or some of them are recomputed or offloaded.
struct LayerPolicy {
  bool full = false;  ///< the layer is recomputed from its input
  /// A full layer is recomputed together with the layer before it, from the input of that one, if
  /// that is full too and of the same pipeline stage.
  bool joins_previous = false;
  NodeSet recomputed = {};  ///< of a layer that is not full
  bool offload = false;     ///< what the layer keeps waits in another memory
  NodeSet offloaded = {};   ///< what these nodes keep does

  bool has_parts() const { return !recomputed.empty() || !offloaded.empty(); }
  bool offloads() const { return offload || !offloaded.empty(); }
  bool operator==(const LayerPolicy&) const = default;
};

struct ActivationPlan {
  std::vector<LayerPolicy> layers = {};  ///< of the whole model; empty: all keep their activations
  bool distributes_saved_activations = false;  ///< the inputs of full layers, over tp
  std::int64_t min_offloaded_elements = 0;     ///< smaller tensors stay

  LayerPolicy of(std::int64_t layer) const {
    return layers.empty() ? LayerPolicy{} : layers.at(static_cast<std::size_t>(layer));
  }
};

/// Returns the plan that the flags or the text describe, which must be valid. Core attention and
/// the activations of MLPs and experts are recomputed by their backward kernels, whatever the
/// flags.
ActivationPlan activation_plan(const MemoryConfig& memory, const PipelineLayout& layout);

/// Returns "none", "full" or "layernorm+mlp+offload".
std::string policy_text(const LayerPolicy& policy);
/// Returns the policies of all layers, such as "full*4,layernorm+mlp*20,none".
std::string activation_plan_text(const std::vector<LayerPolicy>& layers);
/// Inverse of activation_plan_text(). Returns nullopt if the text is malformed or names more than
/// kMaxLayers layers.
std::optional<std::vector<LayerPolicy>> parse_activation_plan(const std::string& text);
/// Returns which item of such a text is wrong, and why. Returns an empty text if it is a plan.
std::string activation_plan_mistake(const std::string& text);

/// Returns whether a budget or a plan says what layers recompute and offload.
bool is_planned(const MemoryConfig& memory);

/// Returns whether a flag or the plan offloads activations of layers, or parts of them.
bool offloads_layers(const MemoryConfig& memory);

/// Returns for each layer of a pipeline rank, in the order of its chunks, whether its weights are
/// offloaded (--cpu-offloading-weights).
std::vector<bool> layers_with_offloaded_weights(const OffloadConfig& config,
                                                const PipelineLayout& layout,
                                                std::int64_t pipeline_rank);

}  // namespace megatron
