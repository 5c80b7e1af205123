#include "megatron/config/layer_nodes.h"

#include <algorithm>

namespace megatron {
namespace {

bool exists(const LayerKind&) { return true; }
bool mixes(const LayerKind& kind) { return kind.mixer != MixerKind::none; }
bool attends(const LayerKind& kind) { return kind.mixer == MixerKind::attention; }
bool feeds_forward(const LayerKind& kind) { return kind.feed_forward != FeedForwardKind::none; }
bool has_mlp(const LayerKind& kind) { return kind.feed_forward == FeedForwardKind::mlp; }
bool has_experts(const LayerKind& kind) { return kind.has_experts(); }

}  // namespace

const std::array<LayerNodeRow, 11>& layer_nodes() {
  using enum LayerNode;
  static constexpr std::array<LayerNodeRow, 11> kRows{
      {{attn_norm, "attn_norm", mixes, kOffloaded},
       {qkv_linear, "qkv_linear", attends, kOffloaded},
       {core_attn, "core_attn", attends, kOffloaded | kRecomputedByKernel},
       {attn_proj, "attn_proj", attends, kOffloaded},
       {layernorm, "layernorm", exists, kRecomputed},
       {mlp_norm, "mlp_norm", feeds_forward, kOffloaded},
       {mlp, "mlp", has_mlp, kOffloaded | kRecomputed},
       {moe, "moe", has_experts, kRecomputed},
       {expert_fc1, "expert_fc1", has_experts, kOffloaded},
       {moe_act, "moe_act", has_experts, kOffloaded | kRecomputedByKernel},
       {shared_experts, "shared_experts", has_experts, kRecomputed}}};
  return kRows;
}

std::vector<std::string> node_names(unsigned uses) {
  std::vector<std::string> names;
  for (const LayerNodeRow& row : layer_nodes())
    if ((row.uses & uses) != 0) names.emplace_back(row.name);
  return names;
}

NodeSet named_nodes(const std::vector<std::string>& names, unsigned uses) {
  NodeSet nodes;
  for (const LayerNodeRow& row : layer_nodes())
    if ((row.uses & uses) != 0 && std::ranges::find(names, row.name) != names.end())
      nodes.insert(row.node);
  return nodes;
}

NodeSet nodes_of(const LayerKind& kind) {
  NodeSet nodes;
  for (const LayerNodeRow& row : layer_nodes())
    if (row.is_in(kind)) nodes.insert(row.node);
  return nodes;
}

}  // namespace megatron
