#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

HfFamily with_output_norms(const std::string& model_type, const std::string& architecture,
                           const AttentionKeys& keys) {
  HfFamily family = llama_like(model_type, architecture, 0, keys);
  family.defaults.norm_epsilon = 1e-5;
  add_query_key_norms(family, QkNormScope::all_heads);
  norm_outputs(family);
  family.add_layer_tensors(mlp_tensors());
  return family;
}

constexpr double kOlmo3Base = 5e5;

/// Refuses another base that transformers 4 takes for all layers, and transformers 5 for those with
/// full attention.
void check_olmo3_base(const ConfigReader& config, HfConfig& /*result*/) {
  const ConfigReader rope = config.section("rope_parameters");
  if (config.number("rope_theta", kOlmo3Base) != kOlmo3Base &&
      !rope.section("sliding_attention").has("rope_theta"))
    config.unsupported("rope_theta",
                       "give rope_parameters of full_attention and of sliding_attention: versions "
                       "of transformers differ in the base of the latter");
}

/// transformers 4 has one base.
void erase_olmo3_base(const T& model, Json& json) {
  if (model.rotary_base_local.value_or(model.rotary_base) == model.rotary_base) return;
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

HfFamily olmo2() { return with_output_norms("olmo2", "Olmo2ForCausalLM", {}); }

HfFamily olmo3() {
  HfFamily family = with_output_norms("olmo3", "Olmo3ForCausalLM", {.local_base = "rope_theta"});
  family.defaults.rotary_base = kOlmo3Base;
  family.defaults.rotary_base_local = kOlmo3Base;
  family.keys.emplace_back("rope_theta", check_olmo3_base, erase_olmo3_base);
  family.keys.push_back(sliding_window({.period = 4}));
  return family;
}

/// OLMoE's experts in OLMo 2's layers.
HfFamily flex_olmo() {
  HfFamily family = llama_like("flex_olmo", "FlexOlmoForCausalLM", 0, {});
  family.defaults.rotary_base = 500000;
  add_query_key_norms(family, QkNormScope::all_heads);
  add_experts(family, "num_experts", "num_local_experts", "intermediate_size", 7, 5);
  add_optional_normalization(family);
  family.defaults.moe.aux_loss_coeff = {0.01};
  family.add_layer_tensors(expert_tensors());
  norm_outputs(family);
  return family;
}

}  // namespace megatron::families
