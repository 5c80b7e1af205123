#include <nlohmann/json.hpp>

#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

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

}  // namespace megatron::families
