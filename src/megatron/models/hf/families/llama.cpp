#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily llama() {
  HfFamily family = llama_like("llama", "LlamaForCausalLM", 0, {.has_head_dim = true});
  family.needs_even_heads = true;
  family.keys.push_back(biases());
  family.add_layer_tensors(mlp_tensors());
  return family;
}

/// A Llama whose MLP has no gate.
HfFamily arcee() {
  HfFamily family = llama_like("arcee", "ArceeForCausalLM", 0, {.has_head_dim = true});
  family.needs_even_heads = true;
  family.defaults.norm_epsilon = 1e-5;
  family.defaults.activation = Activation::squared_relu;
  family.defaults.gated_linear_unit = false;
  family.keys.push_back(biases());
  family.add_layer_tensors({{"mlp.linear_fc1.layer_norm_weight", "post_attention_layernorm.weight"},
                            {"mlp.linear_fc1.{w}", "mlp.up_proj.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}});
  return family;
}

}  // namespace megatron::families
