// Reads config.json into TransformerConfig. Absent fields have the defaults of the families'
// configuration classes in transformers.
#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "megatron/base/error.h"
#include "megatron/base/json.h"
#include "megatron/config/size_limits.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/moe_family.h"
#include "megatron/models/hf/names.h"

namespace megatron {
namespace {

/// The differences between the configuration classes of the llama kind.
struct LlamaVariant {
  std::string_view model_type;
  /// Default number of key-value heads (nothing: as many as heads) and head size (nothing: hidden /
  /// heads).
  std::optional<std::int64_t> default_key_value_heads, default_head_dim;
  bool qkv_bias = false, reads_qkv_bias = false;  ///< the default, and whether the key is read
  bool reads_attention_bias = false, reads_mlp_bias = false, reads_clip_qkv = false;
  std::optional<QkNormScope> qk_norm = {};  ///< nothing: queries and keys have no norm
  /// Which layers have a sliding window: all, all if use_sliding_window, or by layer_types, whose
  /// default is all from max_window_layers on or every other one below it.
  enum class Window { none, every_layer, if_used, from_layer, alternating } window = Window::none;
  std::optional<std::int64_t> default_window = 4096;
  double default_norm_epsilon = 1e-6, default_rope_theta = 10000;
};

constexpr std::array kLlamaVariants{
    LlamaVariant{.model_type = "llama",
                 .default_key_value_heads = {},
                 .default_head_dim = {},
                 .reads_attention_bias = true,
                 .reads_mlp_bias = true},
    LlamaVariant{.model_type = "qwen2",
                 .default_key_value_heads = 32,
                 .default_head_dim = {},
                 .qkv_bias = true,
                 .window = LlamaVariant::Window::from_layer},
    LlamaVariant{.model_type = "qwen3",
                 .default_key_value_heads = 32,
                 .default_head_dim = 128,
                 .reads_attention_bias = true,
                 .qk_norm = QkNormScope::head,
                 .window = LlamaVariant::Window::from_layer},
    LlamaVariant{.model_type = "mistral",
                 .default_key_value_heads = 8,
                 .default_head_dim = {},
                 .window = LlamaVariant::Window::every_layer},
    LlamaVariant{.model_type = "mixtral",
                 .default_key_value_heads = 8,
                 .default_head_dim = {},
                 .window = LlamaVariant::Window::every_layer,
                 .default_window = {},
                 .default_norm_epsilon = 1e-5,
                 .default_rope_theta = 1e6},
    LlamaVariant{.model_type = "qwen2_moe",
                 .default_key_value_heads = 16,
                 .default_head_dim = {},
                 .qkv_bias = true,
                 .reads_qkv_bias = true,
                 .window = LlamaVariant::Window::alternating},
    LlamaVariant{.model_type = "qwen3_moe",
                 .default_key_value_heads = 4,
                 .default_head_dim = {},
                 .reads_attention_bias = true,
                 .qk_norm = QkNormScope::head,
                 .window = LlamaVariant::Window::if_used},
    LlamaVariant{.model_type = "olmoe",
                 .default_key_value_heads = {},
                 .default_head_dim = {},
                 .reads_attention_bias = true,
                 .reads_clip_qkv = true,
                 .qk_norm = QkNormScope::all_heads,
                 .default_norm_epsilon = 1e-5},
};

std::string hf_model_types() {
  std::string names;
  for (const std::string_view name : kHfModelTypes)
    names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

void reject_unsupported_features(const ConfigReader& config) {
  if (config.has("quantization_config"))
    config.unsupported("quantization_config", "use the unquantised weights");
  for (const char* key :
       {"is_encoder_decoder", "add_cross_attention", "scale_attn_by_inverse_layer_idx"}) {
    if (config.boolean(key, false)) config.unsupported(key, "only false is");
  }
}

Activation read_activation(const ConfigReader& config, const std::string& key,
                           const std::string& otherwise) {
  const auto activation = find_activation(config.text(key, otherwise));
  if (!activation) config.unsupported(key, "supported: " + activation_names());
  return *activation;
}

double positive(const ConfigReader& config, const std::string& key, double value) {
  if (!(value > 0) || !std::isfinite(value)) config.unsupported(key, "it must be above 0");
  return value;
}

void read_yarn(const ConfigReader& rope, TransformerConfig& model) {
  model.yarn_beta_fast = rope.number("beta_fast", 32);
  model.yarn_beta_slow = rope.number("beta_slow", 1);
  const double mscale = rope.number("mscale", 0), all_dim = rope.number("mscale_all_dim", 0);
  if (mscale != 0 && all_dim != 0) {
    model.yarn_mscale = mscale;
    model.yarn_mscale_all_dim = all_dim;
  }
  model.yarn_correction_range_round_to_int = rope.boolean("truncate", true);
  model.yarn_attention_factor = rope.optional_number("attention_factor");
}

void read_rope_scaling(const ConfigReader& config, const ConfigReader& rope,
                       TransformerConfig& model) {
  const char* type_key = !rope.has("type") || rope.has("rope_type") ? "rope_type" : "type";
  const std::string type = rope.text(type_key, "default");
  if (type == "default") return;
  const auto scaling = find_rope_scaling(type);
  if (!scaling) rope.unsupported(type_key, "supported: default, linear, llama3, yarn");
  model.rope_scaling_type = *scaling;
  if (*scaling == RopeScaling::yarn || *scaling == RopeScaling::llama3) {
    const std::int64_t inside =
        rope.integer("original_max_position_embeddings", model.max_position_embeddings);
    model.rope_original_max_position_embeddings =
        config.integer("original_max_position_embeddings", inside);
    if (model.rope_original_max_position_embeddings < 1)
      rope.unsupported("original_max_position_embeddings", "it must be at least 1");
  }
  if (*scaling == RopeScaling::yarn && !rope.has("factor")) {
    model.rope_scaling_factor = static_cast<double>(model.max_position_embeddings) /
                                static_cast<double>(model.rope_original_max_position_embeddings);
  } else {
    model.rope_scaling_factor = positive(rope, "factor", rope.number("factor"));
  }
  if (*scaling == RopeScaling::llama3) {
    model.rope_low_freq_factor = positive(rope, "low_freq_factor", rope.number("low_freq_factor"));
    model.rope_high_freq_factor =
        positive(rope, "high_freq_factor", rope.number("high_freq_factor"));
    if (model.rope_high_freq_factor <= model.rope_low_freq_factor)
      rope.unsupported("high_freq_factor", "it must be above low_freq_factor");
  }
  if (*scaling == RopeScaling::yarn) read_yarn(rope, model);
}

void read_rope(const ConfigReader& config, double default_theta, HfConfig& result) {
  TransformerConfig& model = result.model;
  const Json* scaling = config.find("rope_scaling");
  const bool uses_scaling = scaling != nullptr && !scaling->empty();
  const ConfigReader rope = config.section(uses_scaling ? "rope_scaling" : "rope_parameters");
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    if (rope.has(layers))
      rope.unsupported(layers, "one set of rotary parameters for all layers is");
  }
  const ConfigReader& theta = rope.has("rope_theta") ? rope : config;
  model.rotary_base = positive(theta, "rope_theta", theta.number("rope_theta", default_theta));
  const ConfigReader& partial = rope.has("partial_rotary_factor") ? rope : config;
  if (partial.number("partial_rotary_factor", 1) != 1)
    partial.unsupported("partial_rotary_factor", "only 1 is, in this family");
  read_rope_scaling(config, rope, model);
  if (const std::string unknown = rope.unread(); !unknown.empty()) {
    result.notes.push_back(rope.source() + ": fields that rope_type '" +
                           std::string(rope_scaling_name(model.rope_scaling_type)) +
                           "' does not have are ignored: " + unknown);
  }
}

void set_window(const ConfigReader& config, const LlamaVariant& kind, TransformerConfig& model) {
  const std::int64_t width = config.integer("sliding_window", kind.default_window.value_or(0));
  if (width < 1) config.unsupported("sliding_window", "it must be at least 1, or null");
  model.window_size = {width - 1, 0};
}

std::vector<std::int64_t> windowed_layers(const ConfigReader& config, const LlamaVariant& kind,
                                          std::int64_t num_layers, bool enabled) {
  std::vector<std::int64_t> layers;
  if (const Json* types = config.find("layer_types")) {
    if (!types->is_array() || static_cast<std::int64_t>(types->size()) != num_layers) {
      config.unsupported("layer_types", "it must be a list with one entry per layer");
    }
    for (const Json& type : *types) {
      if (type != "full_attention" && type != "sliding_attention")
        config.unsupported("layer_types", "full_attention and sliding_attention are");
      layers.push_back(type == "sliding_attention" ? 1 : 0);
    }
    return layers;
  }
  const std::int64_t limit = config.integer("max_window_layers", 28);
  const bool alternates = kind.window == LlamaVariant::Window::alternating;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const bool chosen = alternates ? layer < limit && layer % 2 == 0 : layer >= limit;
    layers.push_back(enabled && chosen ? 1 : 0);
  }
  return layers;
}

void read_windows_by_layer(const ConfigReader& config, const LlamaVariant& kind, bool enabled,
                           TransformerConfig& model) {
  const std::vector<std::int64_t> layers = windowed_layers(config, kind, model.num_layers, enabled);
  if (std::find(layers.begin(), layers.end(), 1) == layers.end()) return;
  if (!enabled)
    config.unsupported("layer_types",
                       "sliding_attention needs use_sliding_window and sliding_window");
  set_window(config, kind, model);
  if (std::find(layers.begin(), layers.end(), 0) != layers.end()) set_windows(model, layers);
}

void read_window(const ConfigReader& config, const LlamaVariant& kind, TransformerConfig& model) {
  using Window = LlamaVariant::Window;
  const bool has_width = config.has("sliding_window") ||
                         (kind.default_window && !config.contains_key("sliding_window"));
  switch (kind.window) {
    case Window::none:
      return;
    case Window::every_layer:
    case Window::if_used:
      if (config.has("layer_types")) config.unsupported("layer_types", "leave it out");
      if (has_width &&
          (kind.window == Window::every_layer || config.boolean("use_sliding_window", false)))
        set_window(config, kind, model);
      return;
    case Window::from_layer:
    case Window::alternating:
      read_windows_by_layer(config, kind, has_width && config.boolean("use_sliding_window", false),
                            model);
  }
}

void read_biases(const ConfigReader& config, const LlamaVariant& kind, TransformerConfig& model) {
  const bool attention = kind.reads_attention_bias && config.boolean("attention_bias", false);
  const bool mlp = kind.reads_mlp_bias && config.boolean("mlp_bias", false);
  if (attention != mlp) {
    config.unsupported(attention ? "attention_bias" : "mlp_bias",
                       kind.reads_mlp_bias ? "attention_bias and mlp_bias must be equal"
                                           : "only false is, in this family");
  }
  model.add_bias_linear = attention && mlp;
  model.add_qkv_bias =
      kind.reads_qkv_bias ? config.boolean("qkv_bias", kind.qkv_bias) : kind.qkv_bias;
}

std::int64_t even_head_dim(const ConfigReader& config, const std::string& hidden,
                           const std::string& heads) {
  const std::int64_t width = config.size(hidden), count = config.size(heads);
  if (width % count != 0) {
    throw UserError(
        {config.source() + ": field '" + hidden + "' must be a multiple of '" + heads + "'",
         std::to_string(width) + " and " + std::to_string(count), ""});
  }
  return width / count;
}

void read_llama_sizes(const ConfigReader& config, const LlamaVariant& kind,
                      TransformerConfig& model) {
  model.num_layers = config.size("num_hidden_layers", kMostLayers);
  model.hidden_size = config.size("hidden_size");
  model.num_attention_heads = config.size("num_attention_heads");
  model.ffn_hidden_size = config.size("intermediate_size");
  model.max_position_embeddings = config.size("max_position_embeddings", kMaxSize);
  model.vocab_size = config.size("vocab_size", kMaxSize);
  const bool nulled =
      config.contains_key("num_key_value_heads") && !config.has("num_key_value_heads");
  const std::int64_t default_groups =
      nulled ? model.num_attention_heads
             : kind.default_key_value_heads.value_or(model.num_attention_heads);
  model.num_query_groups = config.size("num_key_value_heads", kWidest, default_groups);
  if (model.num_attention_heads % model.num_query_groups != 0)
    config.unsupported("num_key_value_heads",
                       "num_attention_heads must be a multiple of it, here " +
                           std::to_string(model.num_query_groups));
  model.group_query_attention = model.num_query_groups != model.num_attention_heads;
  model.kv_channels = config.has("head_dim") ? config.size("head_dim")
                      : kind.default_head_dim && !config.contains_key("head_dim")
                          ? *kind.default_head_dim
                          : even_head_dim(config, "hidden_size", "num_attention_heads");
  if (model.kv_channels == model.hidden_size / model.num_attention_heads)
    even_head_dim(config, "hidden_size", "num_attention_heads");
  if (model.kv_channels % 2 != 0)
    config.unsupported(
        config.has("head_dim") ? "head_dim" : "hidden_size",
        "rotary positions need heads of an even size, here " + std::to_string(model.kv_channels));
}

HfConfig read_llama(const ConfigReader& config, const LlamaVariant& kind) {
  HfConfig result{
      .model = {},
      .model_type = std::string(kind.model_type),
      .given_training_fields = {{"hidden_dropout", kFamilyHasNone},
                                {"attention_dropout", config.origin("attention_dropout")},
                                {"init_method_std", config.origin("initializer_range")}},
      .notes = {}};
  TransformerConfig& model = result.model;
  read_llama_sizes(config, kind, model);
  model.normalization = Normalization::RMSNorm;
  model.norm_epsilon =
      positive(config, "rms_norm_eps", config.number("rms_norm_eps", kind.default_norm_epsilon));
  model.activation = read_activation(config, "hidden_act", "silu");
  model.gated_linear_unit = true;
  model.qk_layernorm = kind.qk_norm.has_value();
  model.qk_layernorm_scope = kind.qk_norm.value_or(QkNormScope::head);
  if (kind.reads_clip_qkv) model.clip_qkv = config.optional_number("clip_qkv");
  if (model.clip_qkv) positive(config, "clip_qkv", *model.clip_qkv);
  model.position_embedding_type = PositionEmbedding::rope;
  model.untie_embeddings_and_output_weights = !config.boolean("tie_word_embeddings", false);
  model.hidden_dropout = 0;
  model.attention_dropout = config.fraction("attention_dropout", 0);
  model.init_method_std = config.number("initializer_range", 0.02);
  read_biases(config, kind, model);
  read_rope(config, kind.default_rope_theta, result);
  read_window(config, kind, model);
  if (const MoeFamily* moe = find_moe_family(kind.model_type)) read_moe(config, *moe, result);
  return result;
}

/// The transformers library has two names for GPT-2's sizes.
std::string spelled(const ConfigReader& config, const char* own, const char* common) {
  return !config.has(own) && config.has(common) ? common : own;
}

HfConfig read_gpt2(const ConfigReader& config) {
  HfConfig result{
      .model = {},
      .model_type = "gpt2",
      .given_training_fields = {{"hidden_dropout", config.origin("resid_pdrop")},
                                {"attention_dropout", config.origin("attn_pdrop")},
                                {"init_method_std", config.origin("initializer_range")}},
      .notes = {}};
  TransformerConfig& model = result.model;
  const std::string hidden = spelled(config, "n_embd", "hidden_size"),
                    heads = spelled(config, "n_head", "num_attention_heads");
  model.num_layers = config.size(spelled(config, "n_layer", "num_hidden_layers"), kMostLayers);
  model.kv_channels = even_head_dim(config, hidden, heads);
  model.hidden_size = config.integer(hidden);
  model.num_attention_heads = model.num_query_groups = config.integer(heads);
  if (config.has("n_inner")) model.ffn_hidden_size = config.size("n_inner");  // else 4 × hidden
  model.max_position_embeddings =
      config.size(spelled(config, "n_positions", "max_position_embeddings"), kMaxSize);
  model.vocab_size = config.size("vocab_size", kMaxSize);
  model.norm_epsilon =
      positive(config, "layer_norm_epsilon", config.number("layer_norm_epsilon", 1e-5));
  model.activation = read_activation(config, "activation_function", "gelu_new");
  model.untie_embeddings_and_output_weights = !config.boolean("tie_word_embeddings", true);
  if (!config.boolean("scale_attn_weights", true)) model.softmax_scale = 1.0;
  model.hidden_dropout = config.fraction("resid_pdrop", 0.1);
  model.attention_dropout = config.fraction("attn_pdrop", 0.1);
  model.init_method_std = config.number("initializer_range", 0.02);
  if (config.number("embd_pdrop", 0.1) != model.hidden_dropout) {
    result.notes.push_back(config.source() +
                           ": resid_pdrop and embd_pdrop differ; training uses resid_pdrop for "
                           "both unless --hidden-dropout is given");
  }
  return result;
}

}  // namespace

HfConfig parse_hf_config(const Json& json, const std::string& source) {
  const ConfigReader config(json, source);
  const std::string model_type = JsonCursor(json, source)["model_type"].text();
  reject_unsupported_features(config);
  const auto kind = std::find_if(kLlamaVariants.begin(), kLlamaVariants.end(),
                                 [&](const LlamaVariant& k) { return k.model_type == model_type; });
  if (kind == kLlamaVariants.end() && model_type != "gpt2")
    config.unsupported("model_type", "supported: " + hf_model_types());
  HfConfig result = kind == kLlamaVariants.end() ? read_gpt2(config) : read_llama(config, *kind);
  check_sizes(result.model, source);
  return result;
}

}  // namespace megatron
