#include <nlohmann/json.hpp>

#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily starcoder2() {
  HfFamily family = decoder("starcoder2", "Starcoder2ForCausalLM", 2, {});
  family.defaults.activation = Activation::gelu_tanh;
  family.defaults.init_method_std = 0.018042;
  family.add_keys(
      {{"norm_epsilon", &T::norm_epsilon, kPositive}, {"use_bias", &T::add_bias_linear}});
  family.add_keys(dropout_keys("attention_dropout", "residual_dropout", "embedding_dropout"));
  family.keys.push_back(sliding_window({.width = 0}));
  family.tensors.push_back({"decoder.final_layernorm.bias", "model.norm.bias"});
  family.add_layer_tensors({{"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"},
                            {"mlp.linear_fc1.layer_norm_{w}", "post_attention_layernorm.{w}"},
                            {"mlp.linear_fc1.{w}", "mlp.c_fc.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.c_proj.{w}"}});
  return family;
}

}  // namespace megatron::families
