#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

using Layers = std::vector<std::int64_t>;  // 1 or 0 for each layer

/// Returns 1 for the layers that have a property, else 0.
template <class Has>
Layers layers_with(const T& model, Has has) {
  Layers layers;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    layers.push_back(has(static_cast<std::size_t>(layer)) ? 1 : 0);
  return layers;
}

/// Returns the list of a key, which has at least `least` elements; null where it is absent.
const Json* find_list(const ConfigReader& config, const char* key, std::int64_t least,
                      bool (*is_element)(const Json& value)) {
  const Json* list = config.find(key);
  if (list == nullptr) return nullptr;
  if (!list->is_array() || std::ssize(*list) < least || !std::ranges::all_of(*list, is_element))
    config.unsupported(key, "it must be a list of layers");
  return list;
}

bool is_integer(const Json& value) { return value.is_number_integer(); }

bool is_type(const Json& value) {
  return value == "chunked_attention" || value == "full_attention";
}

/// no_rope_layers has 0 for layers without rotary positions, and stands for none if it is empty.
void read_attention_layers(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const std::int64_t n = model.num_layers;
  const auto interval =
      static_cast<std::size_t>(config.size("no_rope_layer_interval", kMaxSize, 4));
  const Json* ropes = find_list(config, "no_rope_layers", 0, is_integer);
  if (ropes != nullptr)
    ropes = ropes->empty() ? nullptr : find_list(config, "no_rope_layers", n, is_integer);
  const Json* types = find_list(config, "layer_types", n, is_type);
  const auto rotates = [=](std::size_t i) {
    return ropes != nullptr ? ropes->at(i) != 0 : (i + 1) % interval != 0;
  };
  const auto nope = layers_with(model, [=](std::size_t i) { return !rotates(i); });
  const auto chunked = layers_with(model, [=](std::size_t i) {
    return types != nullptr ? types->at(i) == "chunked_attention" : rotates(i);
  });
  if (std::ranges::count(chunked, 1) > 0) {
    const char* key = "attention_chunk_size";
    if (config.is_null(key)) config.unsupported(key, "chunked_attention needs it");
    model.attention_chunk_size = config.size(key, kMaxSize, 8192);
    set_windows(model, std::ranges::count(chunked, 0) > 0 ? chunked : Layers());
  }
  set_nope(model, std::ranges::count(nope, 1) > 0 ? nope : Layers());
}

void write_attention_layers(const T& model, Json& json) {
  json["no_rope_layers"] = json["layer_types"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer) {
    const LayerKind kind = model.kind(layer);
    json["no_rope_layers"].push_back(kind.rotary == RotaryKind::none ? 0 : 1);
    json["layer_types"].push_back(kind.chunk > 0 ? "chunked_attention" : "full_attention");
  }
  if (model.attention_chunk_size > 0) json["attention_chunk_size"] = model.attention_chunk_size;
}

/// Early releases have a number for true.
void read_temperature(const ConfigReader& config, HfConfig& result) {
  const Json* tuning = config.find("attn_temperature_tuning");
  const bool is_tuned = tuning != nullptr && tuning->is_number()
                            ? *tuning != 0
                            : config.boolean("attn_temperature_tuning", true);
  if (!is_tuned) result.model.attn_temperature_scale = 0;
}

/// The width of the shared expert is that of the others.
void read_expert_layers(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const char *list = "moe_layers", *step = "interleave_moe_layer_step";
  const Json* chosen = find_list(config, list, 0, is_integer);
  const auto every = static_cast<std::size_t>(config.size(step, kMaxSize, 1));
  const auto layers = layers_with(model, [=](std::size_t i) {
    return chosen == nullptr ? (i + 1) % every == 0 : std::ranges::count(*chosen, Json(i)) > 0;
  });
  if (!std::ranges::count(layers, 1))
    config.unsupported(chosen == nullptr ? step : list, "at least one layer must have experts");
  if (std::ranges::count(layers, 0) > 0) set_experts(model, layers);
  model.moe.shared_expert_intermediate_size = model.moe.ffn_hidden_size;
}

void write_expert_layers(const T& model, Json& json) {
  json["interleave_moe_layer_step"] = 1;
  json["moe_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    if (model.kind(layer).has_experts()) json["moe_layers"].push_back(layer);
}

}  // namespace

HfFamily llama4_text() {
  HfFamily family = llama_like("llama4_text", "Llama4ForCausalLM", 8, {.has_head_dim = true});
  T& model = family.defaults;
  model.norm_epsilon = 1e-5;
  model.rotary_base = 500000;
  model.rotary_interleaved = true;
  model.kv_channels = 128;
  model.qk_l2_norm = true;
  model.attn_temperature_scale = 0.1;
  model.ffn_hidden_size = 16384;
  model.moe.router_score_function = RouterScore::sigmoid;
  model.moe.apply_probs_on_input = true;
  std::erase_if(family.keys, [](const KeyRow& row) { return row.key == "intermediate_size"; });
  add_experts(family, "num_local_experts", "", "intermediate_size", 16, 1);
  const auto check_topk = [](const ConfigReader& config, HfConfig& result) {
    if (result.model.moe.router_topk != 1)
      config.unsupported("num_experts_per_tok", "it must be 1");
  };
  const auto write_tuning = [](const T& written, Json& json) {
    json["attn_temperature_tuning"] = written.attn_temperature_scale != 0;
  };
  family.add_keys({{"num_experts_per_tok", check_topk},
                   {"intermediate_size_mlp", &T::ffn_hidden_size},
                   {"moe_layers", read_expert_layers, write_expert_layers},
                   {"use_qk_norm", &T::qk_l2_norm},
                   {"no_rope_layers", read_attention_layers, write_attention_layers},
                   {"attn_scale", &T::attn_temperature_scale, {.range = kAtLeastZero}},
                   {"floor_scale", &T::attn_temperature_floor, {.most = kMaxSize}},
                   {"attn_temperature_tuning", read_temperature, write_tuning},
                   constant("attention_bias", false)});
  const std::string block = "feed_forward.", fc1 = "mlp.linear_fc1.";
  family.add_layer_tensors({{fc1 + "layer_norm_weight", "post_attention_layernorm.weight"},
                            {fc1 + "weight", block + "gate_proj.weight", kGate},
                            {fc1 + "weight", block + "up_proj.weight", kUp},
                            {"mlp.linear_fc2.weight", block + "down_proj.weight"},
                            {"pre_mlp_layernorm.weight", "post_attention_layernorm.weight"},
                            {"mlp.router.weight", block + "router.weight"},
                            {.ours = "mlp.experts.linear_fc1.weight",
                             .theirs = block + "experts.gate_up_proj",
                             .is_transposed = true},
                            {.ours = "mlp.experts.linear_fc2.weight",
                             .theirs = block + "experts.down_proj",
                             .is_transposed = true}});
  family.add_layer_tensors(shared_expert_tensors(block + "shared_expert"));
  return family;
}

}  // namespace megatron::families
