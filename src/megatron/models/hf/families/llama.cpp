#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily llama() {
  HfFamily family = llama_like("llama", "LlamaForCausalLM", 0, {.has_head_dim = true});
  family.needs_even_heads = true;
  const auto read_biases = [](const ConfigReader& config, HfConfig& result) {
    const bool attention = config.boolean("attention_bias", false);
    if (attention != config.boolean("mlp_bias", false))
      config.unsupported(attention ? "attention_bias" : "mlp_bias",
                         "attention_bias and mlp_bias must be equal");
    result.model.add_bias_linear = attention;
  };
  family.keys.emplace_back("attention_bias", read_biases, [](const T& model, Json& json) {
    json["attention_bias"] = json["mlp_bias"] = model.add_bias_linear;
  });
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace megatron::families
