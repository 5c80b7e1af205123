#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// Biases of queries, keys and values, or of all linear layers.
void read_biases(const ConfigReader& config, HfConfig& result) {
  const bool attention = config.boolean("attention_bias", true),
             out = config.boolean("attention_out_bias", false);
  if (out != config.boolean("mlp_bias", false))
    config.unsupported(out ? "attention_out_bias" : "mlp_bias",
                       "attention_out_bias and mlp_bias must be equal");
  if (out && !attention) config.unsupported("attention_bias", "attention_out_bias needs it");
  result.model.add_bias_linear = out;
  result.model.add_qkv_bias = attention;
}

void write_biases(const T& model, Json& json) {
  json["attention_bias"] = model.add_bias_linear || model.add_qkv_bias;
  json["attention_out_bias"] = json["mlp_bias"] = model.add_bias_linear;
}

}  // namespace

HfFamily seed_oss() {
  HfFamily family = llama_like("seed_oss", "SeedOssForCausalLM", 8, {.has_head_dim = true});
  family.defaults.kv_channels = 128;
  family.defaults.hidden_dropout = family.defaults.attention_dropout = 0.1;
  family.add_keys({{"residual_dropout", &T::hidden_dropout, {.range = kFraction}},
                   {"attention_bias", read_biases, write_biases}});
  family.add_layer_tensors(mlp_tensors());
  return family;
}

}  // namespace megatron::families
