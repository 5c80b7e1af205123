// Rows for the keys of config.json that need code.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/key_rows.h"

namespace megatron {
namespace {

using T = TransformerConfig;
using Layers = std::vector<std::int64_t>;  // 1 or 0 for each layer

void read_head_dim(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const bool is_given = config.has("head_dim");
  if (is_given) model.kv_channels = config.size("head_dim");
  const bool is_default = !is_given && (model.kv_channels == 0 || config.is_null("head_dim"));
  if (is_default || model.kv_channels == model.hidden_size / model.num_attention_heads)
    model.kv_channels = even_head_dim(config, "hidden_size", "num_attention_heads");
  if (model.kv_channels % 2 != 0) {
    config.unsupported(
        is_given ? "head_dim" : "hidden_size",
        "rotary positions need heads of an even size, here " + std::to_string(model.kv_channels));
  }
}

/// The length may stand beside the rotary parameters instead of among them.
void read_original_length(const ConfigReader& rope, HfConfig& result) {
  const char* key = "original_max_position_embeddings";
  std::int64_t& length = result.model.rope_original_max_position_embeddings;
  length = rope.integer(key, result.model.max_position_embeddings);
  length = rope.outer().integer(key, length);
  if (length < 1) rope.unsupported(key, "it must be at least 1");
}

void check_high_factor(const ConfigReader& rope, HfConfig& result) {
  if (result.model.rope_high_freq_factor < result.model.rope_low_freq_factor)
    rope.unsupported("high_freq_factor", "it must be at least low_freq_factor");
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
    rope.unsupported("mscale_all_dim", "give mscale as well");
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
  constexpr KeyMeaning kRequired{.range = kAboveZero, .is_required = true};
  const KeyRow original("original_max_position_embeddings",
                        &T::rope_original_max_position_embeddings, read_original_length);
  static const std::vector<RopeType> types{
      {"default", RopeScaling::none, {}},
      {"linear", RopeScaling::linear, {{"factor", &T::rope_scaling_factor, kRequired}}},
      {"llama3",
       RopeScaling::llama3,
       {original,
        {"factor", &T::rope_scaling_factor, kRequired},
        {"low_freq_factor", &T::rope_low_freq_factor, kRequired},
        {"high_freq_factor", &T::rope_high_freq_factor, kRequired},
        {"", check_high_factor}}},
      {"yarn",
       RopeScaling::yarn,
       {original,
        {"", extend_without_factor},
        {"factor", &T::rope_scaling_factor, {.range = kAboveZero}},
        {"beta_fast", &T::yarn_beta_fast},
        {"beta_slow", &T::yarn_beta_slow},
        {"truncate", &T::yarn_correction_range_round_to_int},
        {"attention_factor", &T::yarn_attention_factor},
        {"mscale", read_mscale, write_yarn_options}}}};
  return types;
}

/// Reads the part of a head that is rotated, from the rotary parameters or the file itself.
void read_partial(const ConfigReader& rope, const std::string& spelling, HfConfig& result) {
  constexpr const char* kKey = "partial_rotary_factor";
  double& part = result.model.rotary_percent;
  const bool is_inside = rope.has(kKey) || spelling.empty();
  const ConfigReader& config = is_inside ? rope.with(kKey) : rope.outer();
  const std::string key = is_inside ? kKey : spelling;
  part = config.number(key, part);
  if (spelling.empty() && part != 1)
    config.unsupported(key, "set it to 1; the family has no other value");
  if (!(part > 0 && part <= 1)) config.unsupported(key, "it must be above 0 and at most 1");
}

/// Reads one set of rotary parameters, whose base may stand in `config` by another name.
void read_rope_set(const ConfigReader& rope, const ConfigReader& config, std::string_view base,
                   const AttentionKeys& keys, HfConfig& result) {
  const bool is_inside = rope.has("rope_theta");
  read_keys(
      {{is_inside ? "rope_theta" : std::string(base), &T::rotary_base, {.range = kAboveZero}}},
      is_inside ? rope : config, result);
  if (keys.null_base_is_none && rope.is_null("rope_theta"))
    result.model.position_embedding_type = PositionEmbedding::none;
  read_partial(rope, std::string(keys.partial_rotary), result);
  const char* key = !rope.has("type") || rope.has("rope_type") ? "rope_type" : "type";
  const auto type = std::ranges::find(rope_types(), rope.text(key, "default"), &RopeType::name);
  if (type == rope_types().end()) rope.unsupported(key, "supported: default, linear, llama3, yarn");
  result.model.rope_scaling_type = type->scaling;
  read_keys(type->keys, rope, result);
  if (keys.rotary != nullptr) read_keys(keys.rotary(), rope, result);
  if (const std::string unknown = rope.unread(); !unknown.empty()) {
    result.notes.push_back(rope.source() + ": fields that rope_type '" + std::string(type->name) +
                           "' does not have are ignored: " + unknown);
  }
}

/// Reads one set for layers with full attention, of which rope_scaling may have fields, and one for
/// layers with a window.
void read_rope_by_layer(const ConfigReader& config, const AttentionKeys& keys, HfConfig& result) {
  const ConfigReader sets = config.section("rope_parameters"),
                     windowed = sets.section("sliding_attention");
  HfConfig local = result;
  local.model.rotary_base = result.model.rotary_base_local.value();
  read_rope_set(windowed, config, keys.local_base, keys, local);
  if (local.model.rope_scaling_type != RopeScaling::none)
    windowed.unsupported("rope_type", "set it to default; layers with a window have no other");
  result.model.rotary_base_local = local.model.rotary_base;
  result.notes = local.notes;
  read_rope_set(sets.section("full_attention"), config, "rope_theta", keys, result);
  if (!sets.unread().empty())
    config.unsupported("rope_parameters", "it may have full_attention and sliding_attention");
}

void read_rope(const ConfigReader& config, const AttentionKeys& keys, HfConfig& result) {
  const bool is_by_layer = !keys.local_base.empty();
  if (is_by_layer) read_rope_by_layer(config, keys, result);
  const Json* scaling = config.find("rope_scaling");
  const bool uses_scaling = scaling != nullptr && !scaling->empty();
  if (is_by_layer && !uses_scaling) return;
  const ConfigReader rope = config.section(uses_scaling ? "rope_scaling" : "rope_parameters");
  for (const char* layers : {"full_attention", "sliding_attention"}) {
    if (rope.has(layers))
      rope.unsupported(layers, "use one set of rotary parameters for all layers");
  }
  read_rope_set(rope, config, keys.rotary_base, keys, result);
}

void write_rope(const T& model, const AttentionKeys& keys, Json& json) {
  const RopeType& type =
      *std::ranges::find(rope_types(), model.rope_scaling_type, &RopeType::scaling);
  Json rope = {{"rope_type", type.name}};
  write_keys(type.keys, model, rope);
  if (keys.rotary != nullptr) write_keys(keys.rotary(), model, rope);
  json["rope_scaling"] = type.keys.empty() ? Json() : rope;
  rope["rope_theta"] = json["rope_theta"] = json[std::string(keys.rotary_base)] =
      keys.null_base_is_none && !model.has_rotary() ? Json() : Json(model.rotary_base);
  json["rope_parameters"] = rope;
  json.erase("original_max_position_embeddings");
  json.erase("partial_rotary_factor");
  if (!keys.local_base.empty()) {
    const double base = model.rotary_base_local.value_or(model.rotary_base);
    json[std::string(keys.local_base)] = base;
    json["rope_parameters"] = {
        {"full_attention", rope},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", base}}}};
  }
  if (keys.partial_rotary.empty()) return;
  json[std::string(keys.partial_rotary)] = json["rope_parameters"]["partial_rotary_factor"] =
      model.rotary_percent;
}

Layers windowed_layers(const ConfigReader& config, const Windows& windows, const T& model,
                       bool enabled) {
  const std::int64_t num_layers = model.num_layers;
  const Json* types = config.find("layer_types");
  if (types == nullptr && windows.rule != nullptr) return windows.rule(config, model);
  const bool follows_rule = types == nullptr && windows.has_layer_types();
  if (types != nullptr && !windows.has_layer_types())
    config.unsupported("layer_types", "leave it out");
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != num_layers))
    config.unsupported("layer_types", "it must be a list with one entry per layer");
  const bool uses_limit = follows_rule && windows.period == 0;
  const std::int64_t limit = uses_limit ? config.integer("max_window_layers", windows.number) : 0;
  const std::int64_t period =
      follows_rule && !uses_limit
          ? config.size(std::string(windows.period_key), kMostLayers, windows.period)
          : 0;
  Layers layers;
  for (std::int64_t layer = 0; layer < num_layers; ++layer) {
    bool has_window = enabled && (!uses_limit || windows.includes(layer, limit)) &&
                      (period == 0 || (layer + 1) % period != 0);
    if (types != nullptr) {
      const Json& type = types->at(static_cast<std::size_t>(layer));
      has_window = type == "sliding_attention";
      if (!has_window && type != "full_attention")
        config.unsupported("layer_types", "use full_attention or sliding_attention");
    }
    layers.push_back(has_window ? 1 : 0);
  }
  return layers;
}

void read_windows(const ConfigReader& config, const Windows& windows, T& model) {
  const char* key = "sliding_window";
  if (windows.period > 0 && config.is_null(key)) config.unsupported(key, "it must be at least 1");
  const bool has_width = config.has(key) || (windows.width > 0 && !config.is_null(key));
  const bool enabled =
      has_width && (!windows.has_switch || config.boolean("use_sliding_window", false));
  const Layers layers = windowed_layers(config, windows, model, enabled);
  if (!std::ranges::count(layers, 1)) return;
  if (!enabled)
    config.unsupported("layer_types", std::string("sliding_attention needs ") +
                                          (windows.has_switch ? "use_sliding_window and " : "") +
                                          key);
  const std::int64_t width = config.integer(key, windows.width);
  if (width < 1) config.unsupported(key, "it must be at least 1, or null");
  model.window_size = {width - 1, 0};
  set_windows(model, layers);
}

void write_windows(const T& model, const Windows& windows, Json& json) {
  json["sliding_window"] = model.window_size ? Json((*model.window_size)[0] + 1) : Json(nullptr);
  if (windows.has_switch) json["use_sliding_window"] = model.window_size.has_value();
  if (!windows.has_layer_types()) return;
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    types.push_back(model.kind(layer).window ? "sliding_attention" : "full_attention");
  json["layer_types"] = types;
  if (windows.includes != nullptr)
    json["max_window_layers"] = std::ranges::find(types, "sliding_attention") - types.begin();
  else if (windows.period > 0 && !model.window_size)
    json.erase("sliding_window");  // these classes need a number
  json.erase(std::string(windows.period_key));
}

void read_rope_layers(const ConfigReader& config, HfConfig& result) {
  const char* key = "no_rope_layers";
  const std::int64_t num_layers = result.model.num_layers;
  Layers rotary, nope;
  const Json* list = config.find(key);
  if (list == nullptr || list->empty()) {
    rotary = all_but_multiples(config.size("no_rope_layer_interval", kMostLayers, 4), num_layers);
  } else if (list->is_array() && std::ssize(*list) >= num_layers &&
             std::ranges::all_of(*list, [](const Json& x) { return x == 0 || x == 1; })) {
    rotary = list->get<Layers>();
  } else {
    config.unsupported(key, "it must be a list with 0 or 1 for each layer");
  }
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    nope.push_back(1 - rotary[static_cast<std::size_t>(layer)]);
  set_nope(result.model, nope);
}

void write_rope_layers(const T& model, Json& json) {
  Json& list = json["no_rope_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    list.push_back(model.kind(layer).rotary == RotaryKind::none ? 0 : 1);
}

void read_expert_layers(const ConfigReader& config, HfConfig& result) {
  const std::int64_t step = config.integer("decoder_sparse_step", 1);
  if (step < 1) config.unsupported("decoder_sparse_step", "it must be at least 1");
  Layers layers;
  for (std::int64_t layer = 0; layer < result.model.num_layers; ++layer)
    layers.push_back((layer + 1) % step == 0 ? 1 : 0);
  const Json none = Json::array(), *dense = config.find("mlp_only_layers");
  if (dense == nullptr) dense = &none;
  const bool is_list = dense->is_array() && std::ranges::all_of(*dense, [](const Json& layer) {
                         return layer.is_number_integer();
                       });
  if (!is_list) config.unsupported("mlp_only_layers", "it must be a list of layers");
  for (const auto layer : dense->get<Layers>())
    // As in transformers, a number that is no layer has no effect.
    if (layer >= 0 && layer < std::ssize(layers)) layers[static_cast<std::size_t>(layer)] = 0;
  if (!std::ranges::count(layers, 1)) {
    config.unsupported(config.has("mlp_only_layers") ? "mlp_only_layers" : "decoder_sparse_step",
                       "at least one layer must have experts");
  }
  set_experts(result.model, layers);
}

void write_expert_layers(const T& model, Json& json) {
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (!model.kind(layer).has_experts()) json["mlp_only_layers"].push_back(layer);
}

void write_aux_loss(const T& model, Json& json) {
  json["router_aux_loss_coef"] = model.moe.coefficient(LoadBalancing::aux_loss);
  json.emplace("output_router_logits", false);
}

}  // namespace

Layers all_but_multiples(std::int64_t period, std::int64_t num_layers) {
  Layers layers;
  for (std::int64_t number = 1; number <= num_layers; ++number)
    layers.push_back(number % period != 0 ? 1 : 0);
  return layers;
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

KeyRows attention_keys(const AttentionKeys& keys) {
  const auto read_positions = [=](const ConfigReader& config, HfConfig& result) {
    read_rope(config, keys, result);
  };
  const auto write_positions = [=](const T& model, Json& json) { write_rope(model, keys, json); };
  const auto read_even_head_dim = [](const ConfigReader& config, HfConfig& result) {
    result.model.kv_channels = even_head_dim(config, "hidden_size", "num_attention_heads");
  };
  const auto write_head_dim = [=](const T& model, Json& json) {
    if (keys.has_head_dim || json.contains("head_dim") ||
        model.kv_channels * model.num_attention_heads != model.hidden_size)
      json["head_dim"] = model.kv_channels;
  };
  return {{"num_attention_heads", &T::num_attention_heads},
          {"num_key_value_heads", &T::num_query_groups, {.divides = &T::num_attention_heads}},
          keys.divides_hidden_size ? KeyRow("head_dim", read_even_head_dim)
                                   : KeyRow("head_dim", read_head_dim, write_head_dim),
          {"rope_parameters", read_positions, write_positions}};
}

KeyRow sliding_window(const Windows& windows) {
  return {"sliding_window",
          [=](const ConfigReader& config, HfConfig& result) {
            read_windows(config, windows, result.model);
          },
          [=](const T& model, Json& json) { write_windows(model, windows, json); }};
}

KeyRow rope_layers() { return {"no_rope_layers", read_rope_layers, write_rope_layers}; }

KeyRows dropout_keys(const std::string& attention, const std::string& residual,
                     const std::string& embedding) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    const double otherwise = result.model.hidden_dropout;  // the next row reads it
    if (config.number(embedding, otherwise) == config.number(residual, otherwise)) return;
    result.notes.push_back(config.source() + ": " + residual + " and " + embedding +
                           " differ; training uses " + residual +
                           " for both unless --hidden-dropout is given");
  };
  return {{embedding, &T::hidden_dropout, read},
          {residual, &T::hidden_dropout, {.range = kFraction}},
          {attention, &T::attention_dropout, {.range = kFraction}}};
}

KeyRow constant(const std::string& key, const Json& value) {
  const auto read = [=](const ConfigReader& config, HfConfig&) {
    if (config.has(key) && *config.find(key) != value)
      config.unsupported(key, "set it to " + value.dump() + "; the family has no other value");
  };
  return {key, read, [=](const T&, Json& json) { json[key] = value; }};
}

KeyRow expert_layers() { return {"decoder_sparse_step", read_expert_layers, write_expert_layers}; }

KeyRow aux_loss() {
  return {
      "router_aux_loss_coef", &MoeConfig::aux_loss_coeff, {.range = kAtLeastZero}, write_aux_loss};
}

}  // namespace megatron
