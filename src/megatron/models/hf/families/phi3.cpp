#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily phi3() {
  HfFamily family =
      llama_like("phi3", "Phi3ForCausalLM", 0, {.partial_rotary = "partial_rotary_factor"});
  family.defaults.norm_epsilon = 1e-5;
  // The class takes type yarn as longrope, which is not supported, and has no other scaling.
  family.keys.emplace_back("", [](const ConfigReader& config, HfConfig& result) {
    if (result.model.rope_scaling_type != RopeScaling::none)
      config.unsupported(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                         "its rope_type must be default");
  });
  family.add_keys(dropout_keys("attention_dropout", "resid_pdrop", "embd_pdrop"));
  family.keys.push_back(sliding_window({.width = 0}));
  std::erase_if(family.tensors, [](const TensorRow& row) {
    return row.ours.ends_with("linear_qkv.{w}");  // one tensor has all three
  });
  family.add_layer_tensors(
      {{"self_attention.linear_qkv.weight", "self_attn.qkv_proj.weight", kQueryKeyValue},
       {"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
       {"mlp.linear_fc1.weight", "mlp.gate_up_proj.weight"},
       {"mlp.linear_fc2.weight", "mlp.down_proj.weight"}});
  return family;
}

}  // namespace megatron::families
