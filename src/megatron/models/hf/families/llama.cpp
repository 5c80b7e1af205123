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

}  // namespace megatron::families
