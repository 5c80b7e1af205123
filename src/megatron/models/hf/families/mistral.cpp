#include <nlohmann/json.hpp>

#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily mistral() {
  HfFamily family = llama_like("mistral", "MistralForCausalLM", 8, {.has_head_dim = true});
  family.keys.push_back(sliding_window({}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

HfFamily mixtral() {
  HfFamily family = llama_like("mixtral", "MixtralForCausalLM", 8, {.has_head_dim = true});
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.rotary_base = 1e6;
  family.keys.push_back(sliding_window({.width = 0}));
  add_experts(family, "num_local_experts", "num_experts", "intermediate_size", 8, 2);
  family.add_keys(
      {{"router_jitter_noise", &M::input_jitter_eps, {.range = kFraction, .zero_is_none = true}}});
  const std::string moe = "block_sparse_moe.", expert = moe + "experts.{e}.";
  family.add_layer_tensors(expert_tensors(expert + "w1.weight", expert + "w3.weight",
                                          expert + "w2.weight", moe + "gate.weight"));
  family.add_layer_tensors({stacked("mlp.router.weight", "mlp.gate.weight")});
  return family;
}

}  // namespace megatron::families
