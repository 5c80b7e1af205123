#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily smollm3() {
  HfFamily family = llama_like("smollm3", "SmolLM3ForCausalLM", 4, {});
  family.defaults.rotary_base = 2e6;
  family.defaults.untie_embeddings_and_output_weights = false;
  family.keys.push_back(biases());
  family.keys.push_back(rope_layers());
  const auto layers_without_rope = [](const ConfigReader& config, const T& model) {
    std::vector<std::int64_t> layers = nope_layers(model);
    if (!config.boolean("use_sliding_window", false) || !config.has("sliding_window"))
      layers.clear();
    return layers;
  };
  family.keys.push_back(
      sliding_window({.width = 0, .has_switch = true, .rule = layers_without_rope}));
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace megatron::families
