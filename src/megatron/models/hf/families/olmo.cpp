#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

HfFamily with_output_norms(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 0, {});
  family.defaults.norm_epsilon = 1e-5;
  add_query_key_norms(family, QkNormScope::all_heads);
  norm_outputs(family);
  family.add_layer_tensors(mlp_tensors());
  return family;
}

/// Reads the rotary parameters of full attention with the row `shared`, and the base of layers with
/// a window, which are not scaled. transformers 4 has both in rope_theta and rope_scaling.
void read_olmo3_rope(const ConfigReader& config, HfConfig& result, const KeyRow& shared) {
  constexpr const char *kRope = "rope_parameters", *kTheta = "rope_theta";
  T& model = result.model;
  const ConfigReader rope = config.section(kRope), sliding = rope.section("sliding_attention");
  const Json *parameters = config.find(kRope), *full = rope.find("full_attention");
  if (parameters != nullptr && !parameters->empty() && full == nullptr &&
      !rope.has("sliding_attention"))
    config.unsupported(kRope, "give those of full_attention and of sliding_attention");
  if (config.number(kTheta, model.rotary_base) != model.rotary_base && !sliding.has(kTheta))
    config.unsupported(kTheta,
                       "give rope_parameters of full_attention and of sliding_attention: versions "
                       "of transformers differ in the base of the latter");
  if (sliding.text("rope_type", "default") != "default")
    sliding.unsupported("rope_type", "layers with a window must have the type default");
  const double local = sliding.number(kTheta, model.rotary_base);
  if (!kAboveZero.contains(local)) sliding.unsupported(kTheta, kAboveZero.words);
  Json own = {{kRope, Json::object()}};
  for (const Json* part : {full, config.find("rope_scaling")}) {
    if (part == nullptr) continue;
    if (!part->is_object())
      config.unsupported(part == full ? kRope : "rope_scaling", "use objects");
    own[kRope].update(*part);
  }
  for (const char* key : {kTheta, "partial_rotary_factor"})
    if (config.has(key)) own[key] = *config.find(key);
  shared.read(ConfigReader(own, config.source()), result);
  if (local != model.rotary_base || model.rope_scaling_type != RopeScaling::none)
    model.rotary_base_local = local;
}

void write_olmo3_rope(const T& model, Json& json, const KeyRow& shared) {
  shared.write(model, json);
  const double local = model.rotary_base_local.value_or(model.rotary_base);
  const Json full = json["rope_parameters"];
  json["rope_parameters"] = {
      {"full_attention", full},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  if (local == model.rotary_base) return;
  json.erase("rope_theta");
  json.erase("rope_scaling");
}

}  // namespace

HfFamily olmoe() {
  HfFamily family = llama_like("olmoe", "OlmoeForCausalLM", 0, {});
  family.defaults.norm_epsilon = 1e-5;
  family.keys.emplace_back("clip_qkv", &T::clip_qkv, kPositive);
  add_query_key_norms(family, QkNormScope::all_heads);
  add_experts(family, "num_experts", "num_local_experts", "intermediate_size", 64, 8);
  add_optional_normalization(family);
  family.defaults.moe.aux_loss_coeff = {0.01};
  family.add_layer_tensors(expert_tensors());
  return family;
}

HfFamily olmo2() { return with_output_norms("olmo2", "Olmo2ForCausalLM"); }

HfFamily olmo3() {
  HfFamily family = with_output_norms("olmo3", "Olmo3ForCausalLM");
  family.defaults.rotary_base = 5e5;
  const auto rope = std::ranges::find(family.keys, "rope_parameters", &KeyRow::key);
  const KeyRow shared = *rope;
  rope->read = [shared](const ConfigReader& config, HfConfig& result) {
    read_olmo3_rope(config, result, shared);
  };
  rope->write = [shared](const T& model, Json& json) { write_olmo3_rope(model, json, shared); };
  family.keys.push_back(sliding_window({.rule = [](const ConfigReader& /*config*/, const T& model) {
    return all_but_multiples(4, model.num_layers);
  }}));
  return family;
}

}  // namespace megatron::families
