// The nodes of a layer: the parts whose activations can be recomputed or offloaded. Flags, plans,
// layers and the planner know them by the same names, from one table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/layer_plan.h"

namespace megatron {

/// The parts that flags name; `none` stands for any other.
enum class LayerNode : std::uint8_t {
  none,
  attn_norm,
  qkv_linear,
  core_attn,
  attn_proj,
  layernorm,
  mlp_norm,
  mlp,
  moe,
  expert_fc1,
  moe_act,
  shared_experts,
  mla_up_proj
};

class NodeSet {
 public:
  constexpr NodeSet() = default;
  constexpr NodeSet(std::initializer_list<LayerNode> nodes) {
    for (const LayerNode node : nodes) insert(node);
  }
  constexpr bool contains(LayerNode node) const { return (bits_ & bit(node)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr void insert(LayerNode node) { bits_ |= bit(node); }
  constexpr NodeSet& operator|=(NodeSet other) { return bits_ |= other.bits_, *this; }
  constexpr NodeSet& operator&=(NodeSet other) { return bits_ &= other.bits_, *this; }
  bool operator==(const NodeSet&) const = default;

 private:
  static constexpr std::uint32_t bit(LayerNode node) { return 1U << static_cast<unsigned>(node); }
  std::uint32_t bits_ = 0;
};

/// Uses of a node, as bits: layers recompute it, or offload what it keeps, if flags name it.
inline constexpr unsigned kRecomputed = 1, kOffloaded = 2;
/// Its backward kernel recomputes it, whatever the flags.
inline constexpr unsigned kRecomputedByKernel = 4;
/// Layers with these blocks have it.
inline constexpr unsigned kOfAttention = 8, kOfMlp = 16, kOfExperts = 32, kOfLatentAttention = 64,
                          kOfAny = 120;

struct LayerNodeRow {
  LayerNode node;
  std::string_view name;  ///< as flags and plans spell it
  unsigned uses;
};

inline constexpr LayerNodeRow kLayerNodes[] = {
    {LayerNode::attn_norm, "attn_norm", kOfAttention | kOffloaded},
    {LayerNode::qkv_linear, "qkv_linear", kOfAttention | kOffloaded},
    {LayerNode::core_attn, "core_attn", kOfAttention | kOffloaded | kRecomputedByKernel},
    {LayerNode::attn_proj, "attn_proj", kOfAttention | kOffloaded},
    {LayerNode::layernorm, "layernorm", kOfAny | kRecomputed},
    {LayerNode::mlp_norm, "mlp_norm", kOfMlp | kOfExperts | kOffloaded},
    {LayerNode::mlp, "mlp", kOfMlp | kOffloaded | kRecomputed},
    {LayerNode::moe, "moe", kOfExperts | kRecomputed},
    {LayerNode::expert_fc1, "expert_fc1", kOfExperts | kOffloaded},
    {LayerNode::moe_act, "moe_act", kOfExperts | kOffloaded | kRecomputedByKernel},
    {LayerNode::shared_experts, "shared_experts", kOfExperts | kRecomputed},
    {LayerNode::mla_up_proj, "mla_up_proj", kOfLatentAttention | kRecomputed}};

/// Returns the names of the nodes that have any of `uses`, in the order of the table.
inline std::vector<std::string> node_names(unsigned uses) {
  std::vector<std::string> names;
  for (const LayerNodeRow& row : kLayerNodes)
    if ((row.uses & uses) != 0) names.emplace_back(row.name);
  return names;
}

/// Returns the nodes that have any of `uses` and one of the names.
inline NodeSet named_nodes(const std::vector<std::string>& names, unsigned uses) {
  NodeSet nodes;
  for (const LayerNodeRow& row : kLayerNodes)
    if ((row.uses & uses) != 0 && std::ranges::find(names, row.name) != names.end())
      nodes.insert(row.node);
  return nodes;
}

/// Returns the nodes of layers of a kind.
inline NodeSet nodes_of(const LayerKind& kind) {
  const bool is_latent = kind.mixer == MixerKind::latent_attention;
  return named_nodes(
      node_names((kind.has_mixer() ? kOfAttention : 0U) | (is_latent ? kOfLatentAttention : 0U) |
                 (kind.feed_forward == FeedForwardKind::mlp ? kOfMlp : 0U) |
                 (kind.has_experts() ? kOfExperts : 0U)),
      kOfAny);
}

}  // namespace megatron
