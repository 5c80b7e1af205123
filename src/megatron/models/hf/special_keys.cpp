#include "megatron/models/hf/special_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/models/hf/config_reader.h"

namespace megatron {
namespace {

using T = TransformerConfig;
using Layers = std::vector<std::int64_t>;  // 1 or 0 for each layer

void read_key_value_heads(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const std::string key = "num_key_value_heads";
  const std::int64_t heads = model.num_attention_heads;
  const bool is_null = config.contains_key(key) && !config.has(key);
  if (is_null || model.num_query_groups == 0) model.num_query_groups = heads;
  model.num_query_groups = config.size(key, kWidest, model.num_query_groups);
  if (heads % model.num_query_groups != 0) {
    config.unsupported(key, "num_attention_heads must be a multiple of it, here " +
                                std::to_string(model.num_query_groups));
  }
  model.group_query_attention = model.num_query_groups != heads;
}

void read_head_dim(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const bool is_given = config.has("head_dim");
  if (is_given) model.kv_channels = config.size("head_dim");
  const bool is_default = !is_given && (model.kv_channels == 0 || config.contains_key("head_dim"));
  if (is_default || model.kv_channels == model.hidden_size / model.num_attention_heads)
    model.kv_channels = even_head_dim(config, "hidden_size", "num_attention_heads");
  if (model.kv_channels % 2 != 0) {
    config.unsupported(
        is_given ? "head_dim" : "hidden_size",
        "rotary positions need heads of an even size, here " + std::to_string(model.kv_channels));
  }
}

/// The length may stand beside the rotary parameters instead of among them.
void read_original_length(const ConfigReader& config, const ConfigReader& rope, T& model) {
  const char* key = "original_max_position_embeddings";
  const std::int64_t inside = rope.integer(key, model.max_position_embeddings);
  model.rope_original_max_position_embeddings = config.integer(key, inside);
  if (model.rope_original_max_position_embeddings < 1)
    rope.unsupported(key, "it must be at least 1");
}

void write_original_length(const T& model, Json& rope) {
  rope["original_max_position_embeddings"] = model.rope_original_max_position_embeddings;
}

void check_high_factor(const ConfigReader& rope, HfConfig& result) {
  if (result.model.rope_high_freq_factor <= result.model.rope_low_freq_factor)
    rope.unsupported("high_freq_factor", "it must be above low_freq_factor");
}

/// Without a factor, yarn extends the original length to the model's.
void extend_without_factor(const ConfigReader& rope, HfConfig& result) {
  T& model = result.model;
  if (rope.has("factor")) return;
  model.rope_scaling_factor = static_cast<double>(model.max_position_embeddings) /
                              static_cast<double>(model.rope_original_max_position_embeddings);
}

void read_mscale(const ConfigReader& rope, HfConfig& result) {
  const double mscale = rope.number("mscale", 0), all_dim = rope.number("mscale_all_dim", 0);
  if (result.model.multi_latent_attention && mscale == 0 && all_dim != 0)
    rope.unsupported("mscale_all_dim", "mscale must be given as well");
  if (mscale == 0 || all_dim == 0) return;
  result.model.yarn_mscale = mscale;
  result.model.yarn_mscale_all_dim = all_dim;
}

void write_yarn_options(const T& model, Json& rope) {
  if (!model.yarn_attention_factor) rope.erase("attention_factor");
  if (model.yarn_mscale_all_dim == 0) return;
  rope["mscale"] = model.yarn_mscale;
  rope["mscale_all_dim"] = model.yarn_mscale_all_dim;
}

struct RopeType {
  std::string_view name;
  RopeScaling scaling;
  KeyRows keys;
};

const std::vector<RopeType>& rope_types() {
  constexpr KeyMeaning kFactor{.range = KeyMeaning::Range::above_zero, .is_required = true};
  const KeyRow original("", {}, write_original_length);
  static const std::vector<RopeType> types{
      {"default", RopeScaling::none, {}},
      {"linear", RopeScaling::linear, {{"factor", &T::rope_scaling_factor, kFactor}}},
      {"llama3",
       RopeScaling::llama3,
       {original,
        {"factor", &T::rope_scaling_factor, kFactor},
        {"low_freq_factor", &T::rope_low_freq_factor, kFactor},
        {"high_freq_factor", &T::rope_high_freq_factor, kFactor},
        {"", check_high_factor}}},
      {"yarn",
       RopeScaling::yarn,
       {original,
        {"", extend_without_factor},
        {"factor", &T::rope_scaling_factor, {.range = KeyMeaning::Range::above_zero}},
        {"beta_fast", &T::yarn_beta_fast},
        {"beta_slow", &T::yarn_beta_slow},
        {"truncate", &T::yarn_correction_range_round_to_int},
        {"attention_factor", &T::yarn_attention_factor},
        {"mscale", read_mscale, write_yarn_options}}}};
  return types;
}

const RopeType& read_rope_type(const ConfigReader& rope) {
  const char* key = !rope.has("type") || rope.has("rope_type") ? "rope_type" : "type";
  const auto found = std::ranges::find(rope_types(), rope.text(key, "default"), &RopeType::name);
  if (found == rope_types().end())
    rope.unsupported(key, "supported: default, linear, llama3, yarn");
  return *found;
}

void read_rope(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const Json* scaling = config.find("rope_scaling");
  const bool uses_scaling = scaling != nullptr && !scaling->empty();
  const ConfigReader rope = config.section(uses_scaling ? "rope_scaling" : "rope_parameters");
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    if (rope.has(layers))
      rope.unsupported(layers, "one set of rotary parameters for all layers is");
  }
  read_keys({{"rope_theta", &T::rotary_base, {.range = KeyMeaning::Range::above_zero}}},
            rope.has("rope_theta") ? rope : config, result);
  const ConfigReader& partial = rope.has("partial_rotary_factor") ? rope : config;
  if (partial.number("partial_rotary_factor", 1) != 1)
    partial.unsupported("partial_rotary_factor", "only 1 is, in this family");
  const RopeType& type = read_rope_type(rope);
  model.rope_scaling_type = type.scaling;
  if (type.scaling == RopeScaling::llama3 || type.scaling == RopeScaling::yarn)
    read_original_length(config, rope, model);
  read_keys(type.keys, rope, result);
  if (const std::string unknown = rope.unread(); !unknown.empty()) {
    result.notes.push_back(rope.source() + ": fields that rope_type '" + std::string(type.name) +
                           "' does not have are ignored: " + unknown);
  }
}

void write_rope(const T& model, Json& json) {
  const RopeType& type =
      *std::ranges::find(rope_types(), model.rope_scaling_type, &RopeType::scaling);
  Json rope = {{"rope_type", type.name}};
  write_keys(type.keys, model, rope);
  json["rope_scaling"] = type.keys.empty() ? Json() : rope;
  rope["rope_theta"] = json["rope_theta"] = model.rotary_base;
  json["rope_parameters"] = rope;
  json.erase("original_max_position_embeddings");
  json.erase("partial_rotary_factor");
}

Layers listed_windows(const ConfigReader& config, const Json& types, std::int64_t num_layers) {
  if (!types.is_array() || static_cast<std::int64_t>(types.size()) != num_layers)
    config.unsupported("layer_types", "it must be a list with one entry per layer");
  Layers layers;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention")
      config.unsupported("layer_types", "full_attention and sliding_attention are");
    layers.push_back(type == "sliding_attention" ? 1 : 0);
  }
  return layers;
}

Layers windowed_layers(const ConfigReader& config, Windows kind, std::int64_t num_layers,
                       bool enabled) {
  const Json* types = config.find("layer_types");
  if (kind == Windows::every_layer || kind == Windows::if_used) {
    if (types != nullptr) config.unsupported("layer_types", "leave it out");
    return Layers(static_cast<std::size_t>(num_layers), enabled ? 1 : 0);
  }
  if (types != nullptr) return listed_windows(config, *types, num_layers);
  Layers layers;
  const std::int64_t limit = config.integer("max_window_layers", 28);
  const bool alternates = kind == Windows::alternating;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    const bool chosen = alternates ? layer < limit && layer % 2 == 0 : layer >= limit;
    layers.push_back(enabled && chosen ? 1 : 0);
  }
  return layers;
}

void read_windows(const ConfigReader& config, Windows kind, T& model) {
  const std::int64_t otherwise = model.window_size ? (*model.window_size)[0] + 1 : 0;
  const bool has_width =
      config.has("sliding_window") || (otherwise > 0 && !config.contains_key("sliding_window"));
  const bool enabled =
      has_width && (kind == Windows::every_layer || config.boolean("use_sliding_window", false));
  model.window_size.reset();
  const Layers layers = windowed_layers(config, kind, model.num_layers, enabled);
  if (!std::ranges::count(layers, 1)) return;
  if (!enabled)
    config.unsupported("layer_types",
                       "sliding_attention needs use_sliding_window and sliding_window");
  const std::int64_t width = config.integer("sliding_window", otherwise);
  if (width < 1) config.unsupported("sliding_window", "it must be at least 1, or null");
  model.window_size = {width - 1, 0};
  if (std::ranges::count(layers, 0) > 0) set_windows(model, layers);
}

void write_windows(const T& model, Windows kind, Json& json) {
  json["sliding_window"] = model.window_size ? Json((*model.window_size)[0] + 1) : Json(nullptr);
  if (kind == Windows::every_layer) return;
  json["use_sliding_window"] = model.window_size.has_value();
  if (kind == Windows::if_used) return;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    types.push_back(model.kind(layer).window ? "sliding_attention" : "full_attention");
  json["max_window_layers"] = std::ranges::find(types, "sliding_attention") - types.begin();
  json["layer_types"] = types;
}

void read_expert_layers(const ConfigReader& config, HfConfig& result) {
  const std::int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) config.unsupported("decoder_sparse_step", "it must be at least 1");
  Layers layers;
  for (std::int64_t layer = 0; layer < result.model.num_layers; ++layer)
    layers.push_back((layer + 1) % step == 0 ? 1 : 0);
  const Json* dense = config.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_array())
    config.unsupported("mlp_only_layers", "it must be a list of layers");
  for (const Json& layer : dense != nullptr ? *dense : Json::array()) {
    if (!layer.is_number_integer())
      config.unsupported("mlp_only_layers", "it must be a list of layers");
    // As in transformers, a number that is no layer has no effect.
    const auto index = layer.get<std::int64_t>();
    if (index >= 0 && index < std::ssize(layers)) layers[static_cast<std::size_t>(index)] = 0;
  }
  if (!std::ranges::count(layers, 1)) {
    config.unsupported(config.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
                       "at least one layer must have experts");
  }
  set_experts(result.model, std::ranges::count(layers, 0) > 0 ? layers : Layers());
}

void write_expert_layers(const T& model, Json& json) {
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (!model.kind(layer).has_experts()) json["mlp_only_layers"].push_back(layer);
}

void write_aux_loss(const T& model, Json& json) {
  json["router_aux_loss_coef"] = model.moe.coefficient(LoadBalancing::aux_loss);
  if (!json.contains("output_router_logits")) json["output_router_logits"] = false;
}

}  // namespace

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

KeyRows attention_keys(bool writes_head_dim) {
  const auto write_groups = [](const T& model, Json& json) {
    json["num_key_value_heads"] = model.num_query_groups;
  };
  const auto write_head_dim = [=](const T& model, Json& json) {
    if (writes_head_dim || json.contains("head_dim") ||
        model.kv_channels * model.num_attention_heads != model.hidden_size)
      json["head_dim"] = model.kv_channels;
  };
  return {{"num_attention_heads", &T::num_attention_heads},
          {"num_key_value_heads", read_key_value_heads, write_groups},
          {"head_dim", read_head_dim, write_head_dim},
          {"rope_parameters", read_rope, write_rope}};
}

KeyRow sliding_window(Windows layers) {
  return {"sliding_window",
          [=](const ConfigReader& config, HfConfig& result) {
            read_windows(config, layers, result.model);
          },
          [=](const T& model, Json& json) { write_windows(model, layers, json); }};
}

KeyRows dropout_keys(const std::string& attention, const std::string& residual,
                     const std::string& embedding) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    const double otherwise = result.model.hidden_dropout;  // the next row reads it
    if (config.number(embedding, otherwise) == config.number(residual, otherwise)) return;
    result.notes.push_back(config.source() + ": " + residual + " and " + embedding +
                           " differ; training uses " + residual +
                           " for both unless --hidden-dropout is given");
  };
  const auto write = [=](const T& model, Json& json) { json[embedding] = model.hidden_dropout; };
  constexpr auto kFraction = KeyMeaning::Range::fraction;
  return {{embedding, read, write},
          {residual, &T::hidden_dropout, {.range = kFraction, .trains = "hidden_dropout"}},
          {attention, &T::attention_dropout, {.range = kFraction, .trains = "attention_dropout"}}};
}

KeyRow always_false(const std::string& key) {
  const auto read = [=](const ConfigReader& config, HfConfig&) {
    if (config.boolean(key, false)) config.unsupported(key, "only false is, in this family");
  };
  return {key, read, [=](const T&, Json& json) { json[key] = false; }};
}

KeyRow expert_layers() { return {"decoder_sparse_step", read_expert_layers, write_expert_layers}; }

KeyRow aux_loss() {
  return {"router_aux_loss_coef",
          &MoeConfig::aux_loss_coeff,
          {.range = KeyMeaning::Range::at_least_zero, .trains = "moe_aux_loss_coeff"},
          write_aux_loss};
}

}  // namespace megatron
