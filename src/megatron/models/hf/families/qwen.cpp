#include <nlohmann/json.hpp>

#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

constexpr Windows kFromLayer{.has_switch = true, .includes = is_from};

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
  M& moe = family.defaults.moe;
  moe.ffn_hidden_size = 1408;
  moe.shared_expert_intermediate_size = 5632;
  moe.shared_expert_gate = true;
  family.add_keys(
      {{"shared_expert_intermediate_size", &M::shared_expert_intermediate_size}, expert_layers()});
  family.add_layer_tensors(mlp_tensors());
  family.add_layer_tensors(expert_tensors());
  family.add_layer_tensors(shared_expert_tensors("mlp.shared_expert"));
  family.add_layer_tensors({{"mlp.shared_experts.gate_weight", "mlp.shared_expert_gate.weight"}});
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

}  // namespace megatron::families
