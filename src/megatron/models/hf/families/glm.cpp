#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Half of each head is rotated by default. The keys are those of the class, and biases are on
/// queries, keys and values alone.
void add_attention(HfFamily& family, bool has_biases) {
  family.defaults.rotary_percent = 0.5;
  family.defaults.add_qkv_bias = has_biases;
  family.keys.emplace_back("attention_bias", &T::add_qkv_bias);
  family.keys.emplace_back("partial_rotary_factor", [](const ConfigReader& config, HfConfig&) {
    if (config.is_null("partial_rotary_factor"))
      config.unsupported("partial_rotary_factor", "give a number, or leave it out");
  });
}

HfFamily glm_like(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 2,
                               {.has_head_dim = true, .partial_rotary = "partial_rotary_factor"});
  T& model = family.defaults;
  model.kv_channels = 128;
  model.norm_epsilon = 1.5625e-7;
  model.rotary_interleaved = true;
  add_attention(family, true);
  family.add_layer_tensors({{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
                            {"mlp.linear_fc1.{w}", "mlp.gate_up_proj.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}});
  return family;
}

/// Experts of DeepSeek-V3's kind beside or in place of MLPs.
void add_deepseek_experts(HfFamily& family, std::int64_t num_dense) {
  M& moe = family.defaults.moe;
  moe.num_experts = 128;
  moe.router_topk = 8;
  moe.ffn_hidden_size = 1408;
  family.add_keys(routed_expert_keys(num_dense, 1));
  family.keys.push_back(expert_groups("noaux_tc", "noaux_tc", 2, 1, 1));
  add_sigmoid_router(family);
  family.add_layer_tensors(expert_tensors());
  family.add_layer_tensors(shared_expert_tensors());
  family.add_layer_tensors({{"mlp.router.expert_bias", "mlp.gate.e_score_correction_bias"}});
}

}  // namespace

HfFamily glm() { return glm_like("glm", "GlmForCausalLM"); }

HfFamily glm4() {
  HfFamily family = glm_like("glm4", "Glm4ForCausalLM");
  family.defaults.norm_placement = NormPlacement::sandwich;
  family.add_layer_tensors({{"post_self_attn_layernorm.weight", "post_self_attn_layernorm.weight"},
                            {"post_mlp_layernorm.weight", "post_mlp_layernorm.weight"}});
  return family;
}

HfFamily glm4_moe() {
  HfFamily family =
      llama_like("glm4_moe", "Glm4MoeForCausalLM", 8, {.partial_rotary = "partial_rotary_factor"});
  family.defaults.norm_epsilon = 1e-5;
  add_attention(family, false);
  family.keys.emplace_back("use_qk_norm", &T::qk_layernorm);
  family.add_layer_tensors(query_key_norm_tensors());
  family.add_layer_tensors(mlp_tensors());
  add_deepseek_experts(family, 1);
  family.keys.push_back(constant("norm_topk_prob", true));
  return family;
}

/// Upstage's Solar Open has no dense layers.
HfFamily solar_open() {
  HfFamily family = llama_like("solar_open", "SolarOpenForCausalLM", 8, {.has_head_dim = true});
  family.defaults.kv_channels = 128;
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.rotary_base = 1e6;
  family.keys.emplace_back("attention_bias", &T::add_qkv_bias);
  add_deepseek_experts(family, 0);
  family.defaults.moe.ffn_hidden_size = 1280;
  std::erase_if(family.keys, [](const KeyRow& row) {
    return row.key == "intermediate_size" || row.key == "first_k_dense_replace";
  });
  family.add_keys({constant("norm_topk_prob", true), constant("first_k_dense_replace", 0)});
  return family;
}

/// Queries and keys as in Qwen3, experts as in DeepSeek-V3.
HfFamily dots1() {
  HfFamily family = llama_like("dots1", "Dots1ForCausalLM", 32, {});
  add_query_key_norms(family, QkNormScope::head);
  family.keys.push_back(sliding_window({.includes = is_from, .number = 62}));
  family.add_layer_tensors(mlp_tensors());
  add_deepseek_experts(family, 0);
  family.defaults.moe.num_experts = family.defaults.moe.router_topk = 0;  // the class has none
  const auto read_normalization = [](const ConfigReader& config, HfConfig&) {
    if (!config.boolean("norm_topk_prob", false))
      config.unsupported("norm_topk_prob", "set it to true; the family has no other value");
  };
  family.keys.emplace_back("norm_topk_prob", read_normalization,
                           [](const T&, Json& json) { json["norm_topk_prob"] = true; });
  return family;
}

}  // namespace megatron::families
