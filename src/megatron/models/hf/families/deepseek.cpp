#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The heads of multi-latent attention, of which none shares keys and values, and their latents.
KeyRows latent_attention_keys() {
  const auto read_groups = [](const ConfigReader& config, HfConfig& result) {
    const std::int64_t heads = result.model.num_attention_heads;
    result.model.num_query_groups = heads;
    if (config.size("num_key_value_heads", kWidest, heads) != heads)
      config.unsupported("num_key_value_heads", "it must equal num_attention_heads");
  };
  const auto write_groups = [](const T& model, Json& json) {
    json["num_key_value_heads"] = model.num_attention_heads;
  };
  const auto read_rank = [](const ConfigReader& config, HfConfig& result) {
    if (config.has("q_lora_rank"))
      result.model.q_lora_rank = config.size("q_lora_rank");
    else if (config.is_null("q_lora_rank"))
      result.model.q_lora_rank = 0;
  };
  const auto write_rank = [](const T& model, Json& json) {
    json["q_lora_rank"] = model.q_lora_rank > 0 ? Json(model.q_lora_rank) : Json();
  };
  const auto write_rotated = [](const T& model, Json& json) {
    json["qk_rope_head_dim"] = json["head_dim"] = model.qk_pos_emb_head_dim;
    if (json.contains("qk_head_dim")) json["qk_head_dim"] = model.qk_channels();
  };
  return {{"num_key_value_heads", read_groups, write_groups},
          {"q_lora_rank", read_rank, write_rank},
          {"kv_lora_rank", &T::kv_lora_rank},
          {"qk_nope_head_dim", &T::qk_head_dim},
          {"qk_rope_head_dim", &T::qk_pos_emb_head_dim, {}, write_rotated},
          {"v_head_dim", &T::v_head_dim}};
}

/// Depths of multi-token prediction, which are numbered behind the other layers. Each has copies of
/// the embedding and of the output layer, which Megatron's share.
void add_next_tokens(HfFamily& family) {
  const std::string layer = "decoder.layers.{i}.", their_layer = "model.layers.{i}.",
                    depth = "mtp.layers.{i}.", their_depth = "model.layers.{m}.";
  const TensorRows known = family.tensors;
  for (TensorRow row : known) {
    if (!row.ours.starts_with(layer)) continue;
    row.ours.replace(0, layer.size(), depth + "transformer_layer.");
    row.theirs.replace(0, their_layer.size(), their_depth);
    family.tensors.push_back(row);
  }
  for (const char* name : {"enorm.weight", "hnorm.weight", "eh_proj.weight"})
    family.add_tensors({{depth + name, their_depth + name}});
  family.add_tensors({{depth + "final_layernorm.weight", their_depth + "shared_head.norm.weight"},
                      {.ours = "embedding.word_embeddings.weight",
                       .theirs = their_depth + "embed_tokens.weight",
                       .is_copy = true},
                      {.ours = "output_layer.weight",
                       .theirs = their_depth + "shared_head.head.weight",
                       .is_copy = true}});
  const auto read = [](const ConfigReader& config, HfConfig& result) {
    result.model.mtp_num_layers = config.integer("num_nextn_predict_layers", 0);
  };
  const auto write = [](const T& model, Json& json) {
    if (model.mtp_num_layers > 0 || json.contains("num_nextn_predict_layers"))
      json["num_nextn_predict_layers"] = model.mtp_num_layers;
  };
  family.keys.emplace_back("num_nextn_predict_layers", read, write);
}

/// Multi-latent attention, and experts in all but the first layers.
HfFamily deepseek(const std::string& model_type, const std::string& architecture) {
  HfFamily family = llama_like(model_type, architecture, 0, {});
  std::erase_if(family.keys, [](const KeyRow& row) {
    return row.key == "num_key_value_heads" || row.key == "head_dim";
  });
  std::erase_if(family.tensors, [](const TensorRow& row) {
    return row.ours.find("linear_qkv") != std::string::npos;
  });
  T& model = family.defaults;
  model.multi_latent_attention = model.qk_layernorm = true;
  model.latent_norm_epsilon = 1e-6;
  model.q_lora_rank = 1536;
  model.kv_lora_rank = 512;
  family.add_keys(latent_attention_keys());
  family.keys.push_back(constant("attention_bias", false));
  const std::string attention = "self_attention.", theirs = "self_attn.";
  family.add_layer_tensors(
      {{"input_layernorm.weight", "input_layernorm.weight"},
       {attention + "linear_q_proj.weight", theirs + "q_proj.weight"},
       {attention + "linear_q_down_proj.weight", theirs + "q_a_proj.weight"},
       {attention + "linear_q_up_proj.layer_norm_weight", theirs + "q_a_layernorm.weight"},
       {attention + "linear_q_up_proj.weight", theirs + "q_b_proj.weight"},
       {attention + "linear_kv_down_proj.weight", theirs + "kv_a_proj_with_mqa.weight"},
       {attention + "linear_kv_up_proj.layer_norm_weight", theirs + "kv_a_layernorm.weight"},
       {attention + "linear_kv_up_proj.weight", theirs + "kv_b_proj.weight"}});
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  family.add_layer_tensors(shared_expert_tensors());
  return family;
}

}  // namespace

HfFamily deepseek_v2() {
  HfFamily family = deepseek("deepseek_v2", "DeepseekV2ForCausalLM");
  family.needs_even_heads = true;
  M& moe = family.defaults.moe;
  moe.num_experts = 64;
  moe.router_topk = 0;  // the class has none
  moe.ffn_hidden_size = 1407;
  moe.router_pre_softmax = true;
  family.add_keys(routed_expert_keys(0, 2));
  family.add_keys({expert_groups("group_limited_greedy", "greedy", 1, 1, 1),
                   constant("norm_topk_prob", false), constant("mlp_bias", false),
                   constant("scoring_func", "softmax")});
  return family;
}

HfFamily deepseek_v3() {
  HfFamily family = deepseek("deepseek_v3", "DeepseekV3ForCausalLM");
  M& moe = family.defaults.moe;
  moe.num_experts = 256;
  moe.router_topk = 8;
  moe.ffn_hidden_size = 2048;
  moe.router_topk_scaling_factor = 2.5;
  family.add_keys(routed_expert_keys(3, 1));
  family.add_keys({expert_groups("noaux_tc", "noaux_tc", 2, 8, 4), constant("norm_topk_prob", true),
                   constant("rope_interleave", true), constant("scoring_func", "sigmoid")});
  add_sigmoid_router(family);
  family.add_layer_tensors({{"mlp.router.expert_bias", "mlp.gate.e_score_correction_bias"}});
  add_next_tokens(family);
  return family;
}

/// Kimi K2 is a DeepSeek-V3 of another name.
HfFamily kimi_k2() {
  HfFamily family = deepseek_v3();
  family.model_type = "kimi_k2";
  return family;
}

}  // namespace megatron::families
