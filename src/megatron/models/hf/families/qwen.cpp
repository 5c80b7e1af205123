#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

constexpr Windows kFromLayer{.has_switch = true, .includes = is_from};

/// Adds shared experts with a gate.
void add_gated_shared_experts(HfFamily& family, std::int64_t width) {
  family.defaults.moe.shared_expert_intermediate_size = width;
  family.defaults.moe.shared_expert_gate = true;
  family.keys.emplace_back("shared_expert_intermediate_size", &M::shared_expert_intermediate_size);
  family.add_layer_tensors(shared_expert_tensors("mlp.shared_expert"));
  family.add_layer_tensors({{"mlp.shared_experts.gate_weight", "mlp.shared_expert_gate.weight"}});
}

std::int64_t num_heads(const T& model) { return model.num_attention_heads; }
std::int64_t num_key_heads(const T& model) { return model.linear_attention.num_key_heads; }

/// A gated delta net with their tensors of the input projection.
TensorRows delta_net_tensors(TensorRows rows) {
  const std::string ours = "self_attention.", theirs = "linear_attn.";
  for (TensorRow& row : rows) {
    row.ours = ours + "in_proj.weight";
    row.theirs = theirs + row.theirs;
  }
  rows.push_back({ours + "in_proj.layer_norm_weight", "input_layernorm.weight"});
  rows.push_back({ours + "out_norm.weight", theirs + "norm.weight"});
  for (const char* name : {"conv1d.weight", "dt_bias", "A_log", "out_proj.weight"})
    rows.push_back({ours + name, theirs + name});
  return rows;
}

/// What Qwen3-Next and Qwen3.5 share: attention with a gate, and gated delta nets.
HfFamily with_delta_nets(const std::string& model_type, const std::string& architecture,
                         std::int64_t groups) {
  HfFamily family = llama_like(model_type, architecture, groups,
                               {.has_head_dim = true, .partial_rotary = "partial_rotary_factor"});
  T& model = family.defaults;
  model.kv_channels = 256;
  model.rotary_percent = 0.25;
  model.apply_layernorm_1p = model.attention_output_gate = true;
  model.linear_attention.norm_1p = false;
  family.ignored = "mtp.";
  add_query_key_norms(family, QkNormScope::head);
  family.add_keys(delta_net_keys());
  for (TensorRow& row : family.tensors) {  // queries and their gates precede the keys
    if (!row.ours.ends_with("linear_qkv.{w}")) continue;
    const bool is_query = row.blocks.first == kQuery.first;
    row.blocks = is_query ? Blocks{0, 2} : Blocks{row.blocks.first + 1, 1};
    if (is_query) row.num_runs = num_heads;
  }
  return family;
}

/// Adds what follows the mixers of Qwen3-Next and of Qwen3.5 with experts.
void add_gated_experts(HfFamily& family, std::int64_t number, std::int64_t topk) {
  add_experts(family, "num_experts", "num_local_experts", "moe_intermediate_size", number, topk);
  family.defaults.moe.ffn_hidden_size = 512;
  add_gated_shared_experts(family, 512);
  family.add_layer_tensors(expert_tensors());
}

/// A text model that was saved from a model with images keeps that one's names of tensors.
HfFamily qwen3_5(const std::string& model_type, const std::string& architecture,
                 std::int64_t groups) {
  HfFamily family = with_delta_nets(model_type, architecture, groups);
  family.other_prefix = "model.language_model.";
  family.add_layer_tensors(delta_net_tensors({{.theirs = "in_proj_qkv.weight", .blocks = {0, 3}},
                                              {.theirs = "in_proj_z.weight", .blocks = {3, 1}},
                                              {.theirs = "in_proj_b.weight", .blocks = {4, 1}},
                                              {.theirs = "in_proj_a.weight", .blocks = {5, 1}}}));
  return family;
}

}  // namespace

HfFamily qwen2() {
  HfFamily family = llama_like("qwen2", "Qwen2ForCausalLM", 32, {});
  family.defaults.add_qkv_bias = true;
  family.keys.push_back(sliding_window(kFromLayer));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily qwen3() {
  HfFamily family = llama_like("qwen3", "Qwen3ForCausalLM", 32, {.has_head_dim = true});
  family.defaults.kv_channels = 128;
  add_query_key_norms(family, QkNormScope::head);
  family.keys.push_back(sliding_window(kFromLayer));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily qwen2_moe() {
  HfFamily family = llama_like("qwen2_moe", "Qwen2MoeForCausalLM", 16, {});
  family.defaults.add_qkv_bias = true;
  family.keys.emplace_back("qkv_bias", &T::add_qkv_bias);
  family.keys.push_back(
      sliding_window({.has_switch = true, .includes = [](std::int64_t layer, std::int64_t limit) {
                        return layer < limit && layer % 2 == 0;
                      }}));
  add_experts(family, "num_experts", "", "moe_intermediate_size", 60, 4);
  add_optional_normalization(family);
  family.defaults.moe.ffn_hidden_size = 1408;
  add_gated_shared_experts(family, 5632);
  family.keys.push_back(expert_layers());
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  return family;
}

HfFamily qwen3_moe() {
  HfFamily family = llama_like("qwen3_moe", "Qwen3MoeForCausalLM", 4, {.has_head_dim = true});
  add_query_key_norms(family, QkNormScope::head);
  family.keys.push_back(sliding_window({.has_switch = true}));
  add_experts(family, "num_experts", "num_local_experts", "moe_intermediate_size", 128, 8);
  add_optional_normalization(family);
  family.defaults.moe.ffn_hidden_size = 768;
  family.keys.push_back(expert_layers());
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  return family;
}

HfFamily qwen3_next() {
  HfFamily family = with_delta_nets("qwen3_next", "Qwen3NextForCausalLM", 2);
  add_gated_experts(family, 512, 10);
  add_optional_normalization(family);
  family.defaults.moe.router_pre_softmax = false;
  family.keys.push_back(expert_layers());
  family.add_layer_tensors(mlp_tensors());
  // The rows of each head of keys, with its values, stand side by side.
  family.add_layer_tensors(delta_net_tensors(
      {{.theirs = "in_proj_qkvz.weight", .blocks = {0, 4}, .num_runs = num_key_heads},
       {.theirs = "in_proj_ba.weight", .blocks = {4, 2}, .num_runs = num_key_heads}}));
  return family;
}

HfFamily qwen3_5_text() {
  HfFamily family = qwen3_5("qwen3_5_text", "Qwen3_5ForCausalLM", 4);
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily qwen3_5_moe_text() {
  HfFamily family = qwen3_5("qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", 2);
  add_gated_experts(family, 256, 8);
  // All layers have experts, and there is no intermediate_size.
  std::ranges::find(family.keys, "intermediate_size", &KeyRow::key)->key = "moe_intermediate_size";
  family.defaults.ffn_hidden_size = 512;
  return family;
}

}  // namespace megatron::families
