#include "megatron/config/layer_plan.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "megatron/base/words.h"
#include "megatron/config/field.h"
#include "megatron/config/list_expression.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_config.h"

namespace megatron {
namespace {

using LayerList = std::vector<std::int64_t>;

/// Returns the list that a text is, or of a period the list with `at_multiple` at its multiples,
/// where the first layer has number `first`. Any other text gives an empty list.
LayerList layer_list(const std::string& text, std::int64_t num_layers, std::int64_t first,
                     bool at_multiple) {
  if (auto list = list_expression(text)) return *std::move(list);
  LayerList list;
  const auto every = layer_period(text);
  if (!every || num_layers > kMaxLayers) return list;
  for (std::int64_t layer = first; layer < first + num_layers; ++layer)
    list.push_back((layer % *every == 0) == at_multiple);
  return list;
}

/// Returns "[1,0,1]", which layer_list() reads.
std::string list_text(const LayerList& list) { return "[" + joined_text(list, ",") + "]"; }

bool are_all(const LayerList& list, std::int64_t value) {
  return std::ranges::count(list, value) == std::ssize(list);
}

bool is_attention(char symbol) { return symbol == '*' || symbol == '+'; }
bool is_mixer(char symbol) { return is_attention(symbol) || symbol == 'M' || symbol == 'G'; }

/// Returns the layer of one block that a symbol of a hybrid pattern stands for. `full` is what a
/// layer with attention and MLP would be.
LayerKind one_block(char symbol, const LayerKind& full) {
  if (is_attention(symbol))
    return {.mixer = symbol == '+' ? MixerKind::latent_attention : MixerKind::attention,
            .feed_forward = FeedForwardKind::none,
            .window = full.window,
            .chunk = full.chunk,
            .rotary = full.rotary,
            .cp_comm_type = full.cp_comm_type};
  if (is_mixer(symbol))
    return {.mixer = symbol == 'M' ? MixerKind::mamba : MixerKind::gated_delta_net,
            .feed_forward = FeedForwardKind::none};
  return {.mixer = MixerKind::none,
          .feed_forward = symbol == 'E' ? FeedForwardKind::experts : FeedForwardKind::mlp};
}

/// Returns whether layers may have a window or chunks.
bool has_local_layers(const TransformerConfig& config) {
  return config.window_size || config.attention_chunk_size > 0;
}

/// The symbols of Megatron's patterns whose layers this version lacks.
constexpr std::array kAbsentSymbols{
    std::pair{'D', "sparse attention (DSA)"},
};

}  // namespace

std::string_view words_of(const LayerKind& kind) {
  if (kind.mixer == MixerKind::mamba) return "Mamba layer";
  if (kind.mixer == MixerKind::gated_delta_net) return "gated delta net layer";
  if (kind.has_experts()) return "MoE layer";
  if (!kind.has_mixer()) return "MLP layer";
  if (kind.has_cross_attention) return "decoder layer";
  return kind.has_mlp() ? "dense layer" : "attention layer";
}

HybridPattern::HybridPattern(std::string_view text)
    : layers(text.substr(0, text.find('/'))), num_depths(std::ranges::count(text, '/')) {
  std::erase(layers, '|');
  if (num_depths > 0) depth = text.substr(text.rfind('/') + 1);
}

std::string HybridPattern::text() const {
  std::string text = layers;
  for (std::int64_t i = 0; i < num_depths; ++i) text += '/' + depth;
  return text;
}

void resolve_layers(TransformerConfig& config) {
  const HybridPattern hybrid(config.hybrid_layer_pattern);
  const std::string pattern = hybrid.layers + hybrid.depth;
  if (!pattern.empty()) {
    config.num_layers = std::ssize(hybrid.layers);
    if (hybrid.num_depths > 0) config.mtp_num_layers = hybrid.num_depths;
    config.mtp_depth_layers = std::max<std::int64_t>(1, std::ssize(hybrid.depth));
  }
  const LayerList experts = config.moe.num_experts > 0 ? expert_layers(config) : LayerList(),
                  windows = windowed_layers(config), nope = nope_layers(config),
                  linear = linear_attention_layers(config);
  const auto fits = [&](const LayerList& list) {
    return list.empty() || std::ssize(list) == config.num_layers;
  };
  config.layers.clear();
  for (const LayerList* list : {&experts, &windows, &nope, &linear})
    if (config.num_layers > kMaxLayers || !fits(*list)) return;
  const LayerKind common = config.kind(0);
  const std::int64_t num_kinds =
      config.num_layers + (hybrid.num_depths > 0 ? config.mtp_depth_layers : 0);
  std::vector<LayerKind> layers(static_cast<std::size_t>(std::max<std::int64_t>(0, num_kinds)),
                                common);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const auto is = [i](const LayerList& list, std::int64_t value) {
      return i < list.size() && list[i] == value;
    };
    if (!pattern.empty() || is(linear, 0))
      layers[i] = config.full_attention_kind(static_cast<std::int64_t>(i));
    if (is(experts, 0)) layers[i].feed_forward = FeedForwardKind::mlp;
    if (layers[i].has_attention() && is(windows, 0)) {
      layers[i].window.reset();
      layers[i].chunk = 0;
      layers[i].rotary = RotaryKind::global;
    }
    if (layers[i].has_attention() && is(nope, 1)) layers[i].rotary = RotaryKind::none;
    if (!pattern.empty()) layers[i] = one_block(pattern[i], layers[i]);
  }
  if (std::ranges::count(layers, common) < std::ssize(layers)) config.layers = std::move(layers);
}

void set_comm_types(TransformerConfig& config, const std::vector<CpCommType>& types) {
  if (types.size() != 1 && std::ssize(types) != config.num_layers) return;  // a rule reports it
  if (std::ranges::count(types, CpCommType::p2p) == std::ssize(types)) return;
  if (config.layers.empty()) {
    std::vector<LayerKind> layers;
    for (std::int64_t i = 0; i < config.num_layers; ++i) layers.push_back(config.kind(i));
    config.layers = std::move(layers);
  }
  for (std::size_t i = 0; i < config.layers.size(); ++i)
    if (config.layers[i].has_attention())
      // Those of multi-token prediction stand behind the layers, and take the last type.
      config.layers[i].cp_comm_type = types[std::min(i, types.size() - 1)];
}

std::vector<std::int64_t> expert_layers(const TransformerConfig& config) {
  if (layer_period(config.moe.layer_freq) == 1) return {};
  return layer_list(config.moe.layer_freq, config.num_layers, 0, /*at_multiple=*/true);
}

std::vector<std::int64_t> windowed_layers(const TransformerConfig& config) {
  return layer_list(config.window_attn_skip_freq, config.num_layers, 1, /*at_multiple=*/false);
}

std::vector<std::int64_t> nope_layers(const TransformerConfig& config) {
  return layer_list(config.no_rope_freq, config.num_layers, 1, /*at_multiple=*/true);
}

std::vector<std::int64_t> linear_attention_layers(const TransformerConfig& config) {
  if (config.linear_attention.variant == AttentionVariant::none) return {};
  return layer_list(config.linear_attention.freq, config.num_layers, 1, /*at_multiple=*/false);
}

void set_experts(TransformerConfig& config, const LayerList& layers) {
  config.moe.layer_freq = are_all(layers, 1) ? MoeConfig{}.layer_freq : list_text(layers);
  resolve_layers(config);
}

void set_windows(TransformerConfig& config, const LayerList& layers) {
  config.window_attn_skip_freq = are_all(layers, 1) ? "" : list_text(layers);
  resolve_layers(config);
}

void set_nope(TransformerConfig& config, const LayerList& layers) {
  config.no_rope_freq = are_all(layers, 0) ? "" : list_text(layers);
  resolve_layers(config);
}

void set_linear_attention(TransformerConfig& config, const LayerList& layers) {
  LinearAttentionConfig& linear = config.linear_attention;
  const bool has_none = !layers.empty() && are_all(layers, 0);
  if (!layers.empty())
    linear.variant = has_none ? AttentionVariant::none : AttentionVariant::gated_delta_net;
  linear.freq = has_none || are_all(layers, 1) ? "" : list_text(layers);
  resolve_layers(config);
}

bool pair_blocks(TransformerConfig& config) {
  resolve_layers(config);
  const HybridPattern hybrid(config.hybrid_layer_pattern);
  const std::string& pattern = hybrid.layers;
  for (std::size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] == 'M' || is_mixer(pattern[i]) != (i % 2 == 0)) return false;
  if (pattern.empty() || pattern.size() % 2 != 0 || hybrid.num_depths > 0) return false;
  LayerList experts, windows, nope, linear;
  for (std::size_t i = 0; i < pattern.size(); i += 2) {
    const LayerKind kind = config.kind(static_cast<std::int64_t>(i));
    experts.push_back(pattern[i + 1] == 'E' ? 1 : 0);
    windows.push_back(kind.is_local() || kind.is_recurrent() ? 1 : 0);
    nope.push_back(kind.rotary == RotaryKind::none ? 1 : 0);
    linear.push_back(kind.is_recurrent() ? 1 : 0);
  }
  config.hybrid_layer_pattern.clear();
  config.num_layers = std::ssize(experts);
  set_experts(config, config.moe.num_experts > 0 ? experts : LayerList());
  set_windows(config, has_local_layers(config) ? windows : LayerList());
  set_nope(config, nope);
  set_linear_attention(config, linear);
  return true;
}

void split_blocks(TransformerConfig& config) {
  LayerList windows, nope;
  std::string pattern;
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const LayerKind kind = config.kind(layer);
    pattern += kind.is_recurrent() ? 'G' : kind.mixer == MixerKind::latent_attention ? '+' : '*';
    pattern += kind.has_experts() ? 'E' : '-';
    windows.insert(windows.end(), 2, kind.is_local() || kind.is_recurrent() ? 1 : 0);
    nope.insert(nope.end(), 2, kind.rotary == RotaryKind::none ? 1 : 0);
  }
  config.hybrid_layer_pattern = pattern;
  config.linear_attention.variant = AttentionVariant::none;
  set_experts(config, {});
  set_windows(config, has_local_layers(config) ? windows : LayerList());
  set_nope(config, nope);
}

TransformerConfig as_one_stack(TransformerConfig config) {
  if (config.mtp_num_layers == 0) return config;
  std::vector<LayerKind> layers;
  for (std::int64_t i = 0; i < config.num_all_layers(); ++i) layers.push_back(config.kind(i));
  config.num_layers = std::ssize(layers);
  config.mtp_num_layers = 0;
  config.layers = std::move(layers);
  return config;
}

RecurrentSizes TransformerConfig::recurrent_sizes(MixerKind mixer) const {
  if (mixer == MixerKind::mamba)
    return {.groups = mamba.num_groups,
            .heads = mamba.num_heads > 0
                         ? mamba.num_heads
                         : 2 * hidden_size / std::max<std::int64_t>(1, mamba.head_dim),
            .key_dim = mamba.state_dim,
            .value_dim = mamba.head_dim,
            .taps = mamba.conv_kernel_dim};
  return {.groups = linear_attention.num_key_heads,
          .heads = linear_attention.num_value_heads,
          .key_dim = linear_attention.key_head_dim,
          .value_dim = linear_attention.value_head_dim,
          .taps = linear_attention.conv_kernel_dim,
          .gates = 2};
}

bool has_mixer(const TransformerConfig& config, MixerKind kind) {
  if (config.layers.empty()) return config.kind(0).mixer == kind;
  return std::ranges::count(config.layers, kind, &LayerKind::mixer) > 0;
}

bool has_attention(const TransformerConfig& config) {
  return has_mixer(config, MixerKind::attention) || has_mixer(config, MixerKind::latent_attention);
}

bool has_recurrent_layers(const TransformerConfig& config) {
  return has_mixer(config, MixerKind::mamba) || has_mixer(config, MixerKind::gated_delta_net);
}

bool has_feed_forward(const TransformerConfig& config, FeedForwardKind kind) {
  if (config.layers.empty()) return config.kind(0).feed_forward == kind;
  return std::ranges::count(config.layers, kind, &LayerKind::feed_forward) > 0;
}

std::string allocated_pattern(std::int64_t num_layers, double attention_ratio, double mlp_ratio) {
  std::string pattern(static_cast<std::size_t>(num_layers), 'M');
  std::int64_t rest = num_layers;
  // Puts `symbol` into the place of some M, one behind each `length` others on average.
  const auto spread = [&](char symbol, double length) {
    double left = length;
    for (char& layer : pattern) {
      if (layer != 'M') continue;
      layer = left < 0.5 ? symbol : layer;
      left += layer == symbol ? length : -1;
    }
  };
  const auto share = [&](double ratio) {  // half to even, as in Python
    return std::llrint(static_cast<double>(num_layers) * ratio);
  };
  rest -= share(attention_ratio);
  spread('*', static_cast<double>(rest) / static_cast<double>(share(attention_ratio) + 1));
  rest -= share(mlp_ratio);
  if (share(mlp_ratio) > 0)
    spread('-', static_cast<double>(rest) / static_cast<double>(share(mlp_ratio)));
  return pattern;
}

void check_hybrid_pattern(std::string_view pattern) {
  for (const char symbol : pattern) {
    const auto* const absent =
        std::ranges::find(kAbsentSymbols, symbol, &std::pair<char, const char*>::first);
    const std::string quoted = std::string("'") + symbol + "'";
    if (absent != kAbsentSymbols.end())
      throw FieldError{quoted + " is " + absent->second + ", which is not in this version"};
    if (std::string_view("MG*+-E|/").find(symbol) == std::string_view::npos)
      throw FieldError{
          quoted + " is no symbol of a layer",
          "write M for Mamba-2, G for a gated delta net, * for attention, + for "
          "multi-latent attention, - for an MLP, E for experts, | between pipeline stages, and / "
          "in front of each depth of multi-token prediction"};
  }
  const HybridPattern hybrid(pattern);
  if (!pattern.empty() && hybrid.layers.empty()) throw FieldError{"lists no layer"};
  if (hybrid.num_depths == 0) return;
  if (hybrid.depth.empty())
    throw FieldError{"lists no layer behind /", "write the layers of a depth, such as M-M-/*E"};
  const std::string_view depths = pattern.substr(pattern.find('/'));
  if (depths.find('|') != std::string_view::npos)
    throw FieldError{"has a | behind /",
                     "the stage of the output has all depths: write no | there"};
  if (hybrid.text().substr(hybrid.layers.size()) != depths)
    throw FieldError{"has depths of multi-token prediction that differ",
                     "write the same layers behind each /, such as M-M-/*E/*E"};
}

}  // namespace megatron
