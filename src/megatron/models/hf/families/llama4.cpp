#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

using Layers = std::vector<std::int64_t>;  // 1 or 0 for each layer

/// By default layers with rotary positions have chunks.
void read_chunks(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  const Json* types = config.find("layer_types");
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != model.num_layers))
    config.unsupported("layer_types", "it must be a list with one entry per layer");
  Layers chunked, nope = nope_layers(model);
  nope.resize(static_cast<std::size_t>(model.num_layers));
  for (std::size_t layer = 0; layer < nope.size(); ++layer) {
    const Json type = types != nullptr   ? types->at(layer)
                      : nope[layer] != 0 ? Json("full_attention")
                                         : Json("chunked_attention");
    if (type != "chunked_attention" && type != "full_attention")
      config.unsupported("layer_types", "use chunked_attention or full_attention");
    chunked.push_back(type == "chunked_attention" ? 1 : 0);
  }
  if (!std::ranges::count(chunked, 1)) return;
  const char* key = "attention_chunk_size";
  if (config.is_null(key)) config.unsupported(key, "chunked_attention needs it");
  model.attention_chunk_size = config.size(key, kMaxSize, 8192);
  set_windows(model, chunked);
}

void write_chunks(const T& model, Json& json) {
  json["layer_types"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    json["layer_types"].push_back(model.kind(layer).chunk > 0 ? "chunked_attention"
                                                              : "full_attention");
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
  Layers experts = all_but_multiples(config.size(step, kMaxSize, 1), model.num_layers);
  for (std::int64_t& layer : experts) layer = 1 - layer;
  if (const Json* chosen = config.find(list); chosen != nullptr) {
    if (!chosen->is_array()) config.unsupported(list, "it must be a list of layers");
    for (std::size_t layer = 0; layer < experts.size(); ++layer)
      experts[layer] = std::ranges::count(*chosen, Json(layer)) > 0 ? 1 : 0;
  }
  if (!std::ranges::count(experts, 1))
    config.unsupported(config.has(list) ? list : step, "at least one layer must have experts");
  set_experts(model, experts);
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
                   rope_layers(),
                   {"attention_chunk_size", read_chunks, write_chunks},
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
