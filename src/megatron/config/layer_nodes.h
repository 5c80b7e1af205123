// The nodes of a layer: the parts whose activations can be recomputed or offloaded. Flags, plans,
// layers and the planner know them by the same names, from one table.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/config/layer_plan.h"

namespace megatron {

enum class LayerNode : std::uint8_t {
  none,  ///< a part that no flag names
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
  shared_experts
};

/// A set of nodes.
class NodeSet {
 public:
  constexpr NodeSet() = default;
  constexpr NodeSet(std::initializer_list<LayerNode> nodes) {
    for (const LayerNode node : nodes) insert(node);
  }
  constexpr bool contains(LayerNode node) const { return (bits_ & bit(node)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  /// Returns whether the node is new to the set.
  constexpr bool insert(LayerNode node) {
    const bool is_new = !contains(node);
    bits_ |= bit(node);
    return is_new;
  }
  constexpr NodeSet& operator&=(NodeSet other) { return bits_ &= other.bits_, *this; }
  bool operator==(const NodeSet&) const = default;

 private:
  static constexpr std::uint32_t bit(LayerNode node) { return 1U << static_cast<unsigned>(node); }
  std::uint32_t bits_ = 0;
};

/// What can be done to a node, as bits.
enum NodeUse : unsigned {
  kRecomputed = 1,         ///< --recompute-modules: layers can recompute it
  kOffloaded = 2,          ///< --offload-modules: layers can offload what it keeps
  kRecomputedByKernel = 4  ///< its backward kernel recomputes it, whatever the flags
};

struct LayerNodeRow {
  LayerNode node;
  std::string_view name;            ///< as flags and plans spell it
  bool (*is_in)(const LayerKind&);  ///< whether layers of a kind have it
  unsigned uses;
};

/// Returns the table, in the order in which plans name the nodes.
const std::array<LayerNodeRow, 11>& layer_nodes();

/// Returns the names of the nodes with any of `uses`.
std::vector<std::string> node_names(unsigned uses);
/// Returns those of these nodes that `names` contains.
NodeSet named_nodes(const std::vector<std::string>& names, unsigned uses);
/// Returns the nodes of layers of a kind.
NodeSet nodes_of(const LayerKind& kind);

}  // namespace megatron
