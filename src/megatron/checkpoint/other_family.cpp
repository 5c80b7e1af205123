#include "megatron/checkpoint/other_family.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/checkpoint/checkpoint.h"
#include "megatron/checkpoint/manifest.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

constexpr std::string_view kMixer = "self_attention.";
constexpr std::array<std::string_view, 3> kMixerNames{kMixer, "input_layernorm.",
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

std::vector<LayerKind> kinds_of(const TransformerConfig& model) {
  std::vector<LayerKind> kinds;
  for (std::int64_t i = 0; i < model.num_layers; ++i) kinds.push_back(model.kind(i));
  return kinds;
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
      const auto in_layer = [name](const std::vector<LayerKind>& layers, std::size_t layer) {
        const LayerKind& kind = layers[layer];
        const bool is_alone =
            kind.is_recurrent() && kind.feed_forward == FeedForwardKind::none && name == kMixer;
        return "decoder.layers." + std::to_string(layer) + "." +
               (is_alone ? "mixer." : std::string(name));
      };
      table.emplace_back(in_layer(from, ours[i].second), in_layer(to, theirs[i].second));
    }
  }
  return table;
}

std::string translate_name(const NameTable& table, const std::string& name) {
  for (const auto& [from, to] : table)
    if (name.starts_with(from)) return to + name.substr(from.size());
  return name;
}

CheckpointSource in_family(CheckpointSource source, const std::string& family) {
  const std::string place =
      source.folder.string() + ": holds a model of the family " + source.family + ", not " + family;
  if (!source.manifest)
    throw UserError({place, "", "convert it first: `megatron convert --format megatron`"});
  TransformerConfig model = source.model;
  if (family == "hybrid")
    split_blocks(model);
  else if (!pair_blocks(model) && !model.hybrid_layer_pattern.empty())
    throw UserError({place, "its layers are not pairs of attention and a feed-forward block",
                     "train hybrid from it"});
  if (model.mtp_num_layers > 0)
    throw UserError({place, "the layers of multi-token prediction have other names there",
                     "train " + source.family + " from it"});
  const NameTable table = name_table(kinds_of(source.model), kinds_of(model));
  Manifest manifest = *source.manifest;
  manifest.optimizer.reset();
  manifest.tensors.clear();
  const std::string main = kMainParameterPrefix;
  for (const auto& [name, tensor] : source.manifest->tensors) {
    if (name.starts_with(main))
      manifest.tensors[main + translate_name(table, name.substr(main.size()))] = tensor;
    else if (tensor.kind != TensorKind::optimizer)
      manifest.tensors[translate_name(table, name)] = tensor;
  }
  source.manifest = std::make_shared<const Manifest>(std::move(manifest));
  source.model = std::move(model);
  source.family = family;
  source.model_type.clear();
  return source;
}

}  // namespace megatron
