#include <algorithm>
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

/// The defaults of gated delta nets, which follow from the sizes of attention.
void set_delta_net_defaults(const ConfigReader& config, HfConfig& result) {
  T& model = result.model;
  LinearAttentionConfig& linear = model.linear_attention;
  linear.num_key_heads = linear.num_value_heads = model.num_attention_heads;
  const std::int64_t heads = config.size("linear_num_key_heads", kWidest, linear.num_key_heads);
  linear.key_head_dim = std::max<std::int64_t>(1, 3 * model.hidden_size / (4 * heads));
  linear.value_head_dim = 2 * config.size("linear_key_head_dim", kWidest, linear.key_head_dim);
}

/// Without layer_types the last of fewer than 4 layers has attention.
void read_few_layers(const ConfigReader& config, HfConfig& result) {
  const std::int64_t count = result.model.num_layers;
  if (count < 4 && !config.has("layer_types"))
    set_linear_attention(result.model, all_but_multiples(count, count));
}

/// A gated delta net, whose norms precede the blocks of its layer.
TensorRows olmo_delta_net_tensors() {
  const std::string ours = "self_attention.", theirs = "linear_attn.",
                    norm = ours + "in_proj.layer_norm_weight", conv = ours + "conv1d.weight";
  TensorRows rows{{norm, "attention_layer_norm.weight"},
                  stacked(norm, "input_layernorm.weight"),
                  stacked("mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"),
                  // transformers 5 writes this name in all layers.
                  stacked("post_self_attn_layernorm.weight", "feedforward_layer_norm.weight"),
                  stacked(conv, theirs + "conv1d.weight"),
                  {ours + "dt_bias", theirs + "dt_bias"},
                  {ours + "A_log", theirs + "A_log"},
                  {ours + "out_norm.weight", theirs + "o_norm.weight"},
                  {ours + "out_proj.weight", theirs + "o_proj.weight"}};
  std::size_t block = 0;
  for (const char* name : {"q", "k", "v", "g", "b", "a"}) {
    const Blocks one{block++, 1};
    rows.push_back({ours + "in_proj.weight", theirs + name + "_proj.weight", one});
    if (block <= 3) rows.push_back({conv, theirs + name + "_conv1d.weight", one});
  }
  return rows;
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

/// Layers of OLMo 2, and layers with gated delta nets, whose norms are Llama's.
HfFamily olmo_hybrid() {
  HfFamily family =
      llama_like("olmo_hybrid", "OlmoHybridForCausalLM", 0, {.null_base_is_none = true});
  add_query_key_norms(family, QkNormScope::all_heads);
  norm_outputs(family);
  family.defaults.norm_placement = NormPlacement::output_unless_recurrent;
  family.defaults.linear_attention.norm_epsilon = 1e-5;
  family.defaults.linear_attention.allow_neg_eigval = true;
  family.keys.emplace_back("linear_num_key_heads", set_delta_net_defaults);
  family.add_keys(delta_net_keys());
  family.add_keys({{"layer_types", read_few_layers},
                   {"linear_allow_neg_eigval", &LinearAttentionConfig::allow_neg_eigval}});
  TensorRows mlp = mlp_tensors();
  mlp.front().theirs = "feedforward_layer_norm.weight";
  family.add_layer_tensors(mlp);
  family.add_layer_tensors(olmo_delta_net_tensors());
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
