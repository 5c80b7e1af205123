#include "megatron/models/name_table.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

constexpr std::array<std::string_view, 3> kMixerNames{"self_attention.", "input_layernorm.",
                                                      "post_self_attn_layernorm."},
    kFeedForwardNames{"mlp.", "pre_mlp_layernorm.", "post_mlp_layernorm."};

/// The blocks of a model, each as a layer of that block alone, with their layers.
std::vector<std::pair<LayerKind, std::int64_t>> blocks_of(const TransformerConfig& config) {
  std::vector<std::pair<LayerKind, std::int64_t>> blocks;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    LayerKind mixer = config.kind(i), feed_forward{.mixer = MixerKind::none};
    feed_forward.feed_forward = std::exchange(mixer.feed_forward, FeedForwardKind::none);
    if (mixer.mixer != MixerKind::none) blocks.emplace_back(mixer, i);
    if (feed_forward.feed_forward != FeedForwardKind::none) blocks.emplace_back(feed_forward, i);
  }
  return blocks;
}

}  // namespace

NameTable name_table(const TransformerConfig& from, const TransformerConfig& to) {
  const auto ours = blocks_of(from), theirs = blocks_of(to);
  using Block = std::pair<LayerKind, std::int64_t>;
  if (!std::ranges::equal(ours, theirs, {}, &Block::first, &Block::first)) return {};
  // A stack with layers of one block is Megatron's MambaStack, which names its final norm so.
  const auto final_norm = [&](const TransformerConfig& config) -> std::string {
    return std::ssize(ours) < 2 * config.num_layers ? "decoder.final_norm."
                                                    : "decoder.final_layernorm.";
  };
  NameTable table{{final_norm(from), final_norm(to)}};
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool is_mixer = ours[i].first.mixer != MixerKind::none;
    for (const std::string_view name : is_mixer ? kMixerNames : kFeedForwardNames) {
      const auto in_layer = [name](std::int64_t layer) {
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
