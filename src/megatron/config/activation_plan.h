// What each layer does with its activations between forward and backward, as one text: a memory
// budget chooses it, --activation-plan gives it, and checkpoints keep it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "megatron/config/offload_plan.h"
#include "megatron/config/recompute_plan.h"

namespace megatron {

struct MemoryConfig;

/// What one layer does: it keeps its activations, or some of them are recomputed or offloaded.
struct LayerActivationPolicy {
  bool full = false;  ///< the layer is recomputed from its input
  bool layernorm = false, mlp = false, moe = false, shared_experts = false;  ///< are recomputed
  bool offload = false;  ///< what the layer keeps waits in another memory
  bool operator==(const LayerActivationPolicy&) const = default;
};

/// Returns "none", "full" or "layernorm+mlp+offload".
std::string policy_text(const LayerActivationPolicy& policy);
/// Returns the policies of all layers, such as "full*4,layernorm+mlp*20,none".
std::string activation_plan_text(const std::vector<LayerActivationPolicy>& layers);
/// Inverse of activation_plan_text(). Returns nullopt if the text is malformed or names more than
/// kMaxLayers layers.
std::optional<std::vector<LayerActivationPolicy>> parse_activation_plan(const std::string& text);
/// Returns which item of such a text is wrong, and why. Returns an empty text if it is a plan.
std::string activation_plan_mistake(const std::string& text);

/// Returns whether a budget or a plan says what layers recompute and offload.
bool is_planned(const MemoryConfig& memory);

/// Returns whether a flag or the plan offloads activations of layers, or parts of them.
bool offloads_layers(const MemoryConfig& memory);

/// Returns the recomputation and the offload of such a plan. Tensors of fewer than `min_elements`
/// elements stay.
RecomputePlan recompute_plan(const std::vector<LayerActivationPolicy>& layers);
OffloadPlan offload_plan(const std::vector<LayerActivationPolicy>& layers,
                         std::int64_t min_elements);

}  // namespace megatron
