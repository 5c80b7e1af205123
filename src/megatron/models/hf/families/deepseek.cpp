#include <algorithm>
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

/// topk_method, n_group and topk_group. With the method `limited` only experts of the best groups
/// are chosen, where a group has the score of its `scored` best experts; with `otherwise` they do
/// not count.
KeyRow expert_groups(const std::string& limited, const std::string& otherwise, std::int64_t scored,
                     std::int64_t groups, std::int64_t chosen) {
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    M& moe = result.model.moe;
    const std::string method = config.text("topk_method", otherwise);
    if (method != limited && method != otherwise)
      config.unsupported("topk_method", "supported: " + limited);
    const std::int64_t number = config.size("n_group", kMostExperts, groups),
                       best = config.size("topk_group", kMostExperts, chosen);
    if (method != limited || best >= number) return;
    if (moe.num_experts % number != 0 || moe.num_experts / number < scored)
      config.unsupported("n_group", "it must divide n_routed_experts into groups of at least " +
                                        std::to_string(scored));
    moe.router_num_groups = number;
    moe.router_group_topk = best;
    moe.router_group_score_topk = scored;
  };
  const auto write = [=](const T& model, Json& json) {
    json["n_group"] = model.moe.router_num_groups.value_or(1);
    json["topk_group"] = model.moe.router_group_topk.value_or(1);
    json["topk_method"] = model.moe.router_num_groups ? limited : otherwise;
  };
  return {"n_group", read, write};
}

/// Which layers have experts, and the width of the shared ones.
KeyRows deepseek_expert_keys(std::int64_t num_dense, std::int64_t num_shared) {
  const auto read_dense = [=](const ConfigReader& config, HfConfig& result) {
    const std::int64_t layers = result.model.num_layers,
                       dense = config.integer("first_k_dense_replace", num_dense);
    if (dense < 0 || dense >= layers)
      config.unsupported("first_k_dense_replace", "at least one layer must have experts");
    std::vector<std::int64_t> experts(static_cast<std::size_t>(layers), 1);
    std::fill_n(experts.begin(), dense, 0);
    set_experts(result.model, dense > 0 ? experts : std::vector<std::int64_t>());
  };
  const auto write_dense = [](const T& model, Json& json) {
    std::int64_t dense = 0;
    while (dense < model.num_layers && !model.kind(dense).has_experts()) ++dense;
    json["first_k_dense_replace"] = dense;
  };
  const auto read_shared = [=](const ConfigReader& config, HfConfig& result) {
    M& moe = result.model.moe;
    const std::int64_t absent = config.is_null("n_shared_experts") ? 0 : num_shared;
    moe.shared_expert_intermediate_size =
        config.integer("n_shared_experts", absent) * moe.ffn_hidden_size;
  };
  const auto write_shared = [](const T& model, Json& json) {
    const M& moe = model.moe;
    json["n_shared_experts"] = moe.shared_expert_intermediate_size / moe.ffn_hidden_size;
  };
  const auto write_factor = [](const T& model, Json& json) {
    json["routed_scaling_factor"] = model.moe.router_topk_scaling_factor.value_or(1);
  };
  return {
      {"n_routed_experts", &M::num_experts, {.most = kMostExperts, .alias = "num_local_experts"}},
      {"num_experts_per_tok", &M::router_topk, {.most_in = &M::num_experts}},
      {"moe_intermediate_size", &M::ffn_hidden_size},
      {"first_k_dense_replace", read_dense, write_dense},
      {"n_shared_experts", read_shared, write_shared},
      {"routed_scaling_factor", &M::router_topk_scaling_factor, kPositive, write_factor},
      constant("moe_layer_freq", 1)};
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
  family.add_keys(deepseek_expert_keys(0, 2));
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
  moe.router_score_function = RouterScore::sigmoid;
  moe.router_enable_expert_bias = true;
  moe.router_topk_scaling_factor = 2.5;
  family.add_keys(deepseek_expert_keys(3, 1));
  family.add_keys({expert_groups("noaux_tc", "noaux_tc", 2, 8, 4), constant("norm_topk_prob", true),
                   constant("rope_interleave", true), constant("scoring_func", "sigmoid")});
  // One expert would have the weight 1, which ours has not.
  family.keys.emplace_back("num_experts_per_tok", [](const ConfigReader& config, HfConfig& result) {
    if (result.model.moe.router_topk == 1)
      config.unsupported("num_experts_per_tok", "it must be above 1");
  });
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
