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

/// A block of the stack. A layer of no feed-forward has only a mixer, and the other way round.
struct Block {
  LayerKind kind;  ///< with one block
  std::size_t layer = 0;
};

std::vector<Block> blocks_of(const std::vector<LayerKind>& layers) {
  std::vector<Block> blocks;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerKind mixer = layers[i];
    mixer.feed_forward = FeedForwardKind::none;
    if (mixer.mixer != MixerKind::none) blocks.push_back({mixer, i});
    const LayerKind feed_forward{.mixer = MixerKind::none, .feed_forward = layers[i].feed_forward};
    if (feed_forward.feed_forward != FeedForwardKind::none) blocks.push_back({feed_forward, i});
  }
  return blocks;
}

/// Returns the beginning of the names of the final norm, which is Megatron's of MambaStack in a
/// stack with layers of one block.
std::string final_norm(const std::vector<LayerKind>& layers) {
  return blocks_of(layers).size() < 2 * layers.size() ? "decoder.final_norm."
                                                      : "decoder.final_layernorm.";
}

}  // namespace

std::vector<LayerKind> layer_kinds(const TransformerConfig& config) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < config.num_layers; ++i) kinds.push_back(config.kind(i));
  return kinds;
}

NameTable name_table(const std::vector<LayerKind>& from, const std::vector<LayerKind>& to) {
  const std::vector<Block> ours = blocks_of(from), theirs = blocks_of(to);
  if (!std::ranges::equal(ours, theirs, {}, &Block::kind, &Block::kind)) return {};
  NameTable table{{final_norm(from), final_norm(to)}};
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const bool is_mixer = ours[i].kind.mixer != MixerKind::none;
    for (const std::string_view name : is_mixer ? kMixerNames : kFeedForwardNames) {
      const auto in_layer = [name](std::size_t layer) {
        return "decoder.layers." + std::to_string(layer) + "." + std::string(name);
      };
      table.emplace_back(in_layer(ours[i].layer), in_layer(theirs[i].layer));
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
