// What each layer of a stack consists of, as a value: layers of equal kind have equal parameters,
// costs and code paths.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/cp_comm_type.h"

namespace megatron {

struct TransformerConfig;

/// The block of a layer that mixes positions; none in a layer of a hybrid pattern that only has a
/// feed-forward block.
enum class MixerKind : std::uint8_t { none, attention, latent_attention, mamba, gated_delta_net };

/// How attention rotates queries and keys, in a model with rotary positions.
enum class RotaryKind : std::uint8_t { none, global, local };

/// The block of a layer that works on each position separately.
enum class FeedForwardKind : std::uint8_t { none, mlp, experts };

struct LayerKind {
  MixerKind mixer = MixerKind::attention;
  FeedForwardKind feed_forward = FeedForwardKind::mlp;
  /// Sliding window (left, right) of attention; −1 = unlimited, nullopt = no window.
  std::optional<std::array<std::int64_t, 2>> window = {};
  std::int64_t chunk = 0;  ///< attention within chunks of so many positions; 0 = no chunks
  RotaryKind rotary = RotaryKind::global;
  CpCommType cp_comm_type = CpCommType::p2p;
  bool has_cross_attention = false;  ///< a block behind the mixer attends to the encoder's rows

  /// Returns whether attention does not see all positions.
  bool is_local() const { return window.has_value() || chunk > 0; }
  bool has_mixer() const { return mixer != MixerKind::none; }
  bool has_attention() const {
    return mixer == MixerKind::attention || mixer == MixerKind::latent_attention;
  }
  /// Returns whether the mixer keeps a state in place of keys and values (nn/ssm/).
  bool is_recurrent() const { return has_mixer() && !has_attention(); }
  bool has_mlp() const { return feed_forward == FeedForwardKind::mlp; }
  bool has_experts() const { return feed_forward == FeedForwardKind::experts; }
  bool operator==(const LayerKind&) const = default;
};

/// Returns what users call a layer of this kind: "dense layer", "MoE layer", "decoder layer" with
/// cross attention, "gated delta net layer", or of one block "attention layer", "Mamba layer", "MLP
/// layer", "MoE layer".
std::string_view words_of(const LayerKind& kind);

/// A value for each kind of layer, in the order in which the kinds were added.
template <class T>
struct ByKind {
  std::vector<std::pair<LayerKind, T>> entries;

  /// Returns the place of a kind, which may be new.
  std::size_t index(const LayerKind& kind) {
    const auto found = std::ranges::find(entries, kind, &std::pair<LayerKind, T>::first);
    if (found != entries.end()) return static_cast<std::size_t>(found - entries.begin());
    entries.emplace_back(kind, T{});
    return entries.size() - 1;
  }
  T& operator[](const LayerKind& kind) { return entries[index(kind)].second; }
  const T& of(const LayerKind& kind) const {
    const auto found = std::ranges::find(entries, kind, &std::pair<LayerKind, T>::first);
    MEGATRON_CHECK(found != entries.end(), "no value for a ", words_of(kind));
    return found->second;
  }
};

/// What a --hybrid-layer-pattern says, such as M*M*|M*M*/*E/*E.
struct HybridPattern {
  std::string layers;           ///< of the model, without borders of stages
  std::string depth;            ///< the layers of each depth of multi-token prediction
  std::int64_t num_depths = 0;  ///< of multi-token prediction

  /// Reads a pattern that check_hybrid_pattern() accepts.
  explicit HybridPattern(std::string_view text);
  std::string text() const;
};

/// Sets config.layers, and with a hybrid pattern num_layers, mtp_num_layers and mtp_depth_layers,
/// from the texts that name layers. Texts that name other layers than the model has leave it empty;
/// validate_model() reports them.
void resolve_layers(TransformerConfig& config);
/// Sets how each layer's attention communicates: one type for all layers, or one for each.
void set_comm_types(TransformerConfig& config, const std::vector<CpCommType>& types);

/// Returns 1 for each layer with experts and 0 for others, as --moe-layer-freq says; empty: every
/// layer that has a feed-forward block may have them.
std::vector<std::int64_t> expert_layers(const TransformerConfig& config);
/// Returns 1 for each layer that uses the window or the chunks, as --window-attn-skip-freq says;
/// empty: all do.
std::vector<std::int64_t> windowed_layers(const TransformerConfig& config);
/// Returns 1 for each layer without rotary positions, as --no-rope-freq says; empty: none.
std::vector<std::int64_t> nope_layers(const TransformerConfig& config);
/// Returns 1 for each layer with linear attention, as --linear-attention-freq says; empty: all have
/// it. Without --experimental-attention-variant no layer has.
std::vector<std::int64_t> linear_attention_layers(const TransformerConfig& config);
/// Name the layers by a list as the functions above return it, or by one of equal entries, and
/// resolve the layers.
void set_experts(TransformerConfig& config, const std::vector<std::int64_t>& layers);
void set_windows(TransformerConfig& config, const std::vector<std::int64_t>& layers);
void set_nope(TransformerConfig& config, const std::vector<std::int64_t>& layers);
/// An empty list leaves linear attention to all layers if there is any.
void set_linear_attention(TransformerConfig& config, const std::vector<std::int64_t>& layers);

/// Spells a hybrid pattern of attention and a feed-forward block in turn as half as many layers of
/// two blocks, which compute the same. Returns false, and changes nothing, for another pattern.
bool pair_blocks(TransformerConfig& config);
/// Spells layers of two blocks as a hybrid pattern, which computes the same.
void split_blocks(TransformerConfig& config);

/// Returns a model whose decoder also has the layers of multi-token prediction, as its last ones.
/// It has the costs of each, and not the mathematics.
TransformerConfig as_one_stack(TransformerConfig config);

/// Return whether a layer of the model has a block of this kind.
bool has_mixer(const TransformerConfig& config, MixerKind kind);
bool has_attention(const TransformerConfig& config);
bool has_recurrent_layers(const TransformerConfig& config);
bool has_feed_forward(const TransformerConfig& config, FeedForwardKind kind);

/// Returns the pattern of megatron-core for shares of attention and of MLPs: attention is spread
/// evenly between Mamba-2 layers, of which MLPs then replace some.
std::string allocated_pattern(std::int64_t num_layers, double attention_ratio, double mlp_ratio);

/// Throws FieldError unless `pattern` is a --hybrid-layer-pattern that this version can run.
void check_hybrid_pattern(std::string_view pattern);

}  // namespace megatron
