#include "megatron/models/name_table.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace megatron {
namespace {

constexpr std::array<std::string_view, 3> kMixerNames{"self_attention.", "input_layernorm.",
                                                      "post_self_attn_layernorm."},
    kFeedForwardNames{"mlp.", "pre_mlp_layernorm.", "post_mlp_layernorm."};

/// A block as a layer of that block alone, and the index of its layer.
using Block = std::pair<LayerKind, std::size_t>;

std::vector<Block> blocks_of(const std::vector<LayerKind>& layers) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerKind mixer = layers[i], feed_forward{.mixer = MixerKind::none};
    feed_forward.feed_forward = std::exchange(mixer.feed_forward, FeedForwardKind::none);
    if (mixer.mixer != MixerKind::none) blocks.emplace_back(mixer, i);
    if (feed_forward.feed_forward != FeedForwardKind::none) blocks.emplace_back(feed_forward, i);
  }
  return blocks;
}

}  // namespace

NameTable name_table(const std::vector<LayerKind>& from, const std::vector<LayerKind>& to) {
  const std::vector<Block> ours = blocks_of(from), theirs = blocks_of(to);
  if (!std::ranges::equal(ours, theirs, {}, &Block::first, &Block::first)) return {};
  // A stack with layers of one block is Megatron's MambaStack, which names its final norm so.
  const auto final_norm = [&](const std::vector<LayerKind>& layers) -> std::string {
    return ours.size() < 2 * layers.size() ? "decoder.final_norm." : "decoder.final_layernorm.";
  };
  NameTable table{{final_norm(from), final_norm(to)}};
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool is_mixer = ours[i].first.mixer != MixerKind::none;
    for (const std::string_view name : is_mixer ? kMixerNames : kFeedForwardNames) {
      const auto in_layer = [name](std::size_t layer) {
        return "decoder.layers." + std::to_string(layer) + "." + std::string(name);
      };
      table.emplace_back(in_layer(ours[i].second), in_layer(theirs[i].second));
    }
  }
  return table;
}

std::string translate_name(const NameTable& table, const std::string& name) {
  for (const auto& [from, to] : table)
    if (name.starts_with(from)) return to + name.substr(from.size());
  return name;
}

}  // namespace megatron
