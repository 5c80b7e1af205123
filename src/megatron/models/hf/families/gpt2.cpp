#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

void read_gpt2_heads(const ConfigReader& config, HfConfig& result) {
  result.model.kv_channels = even_head_dim(config, config.has("n_embd") ? "n_embd" : "hidden_size",
                                           config.has("n_head") ? "n_head" : "num_attention_heads");
}

void read_gpt2_inner(const ConfigReader& config, HfConfig& result) {
  if (config.has("n_inner")) result.model.ffn_hidden_size = config.size("n_inner");
}

void write_gpt2_inner(const T& model, Json& json) {
  const bool is_default = model.ffn_hidden_size == 4 * model.hidden_size;
  json["n_inner"] = is_default ? Json() : Json(model.ffn_hidden_size);
  if (json.contains("n_ctx")) json["n_ctx"] = model.max_position_embeddings;
}

void read_gpt2_scale(const ConfigReader& config, HfConfig& result) {
  if (!config.boolean("scale_attn_weights", true)) result.model.softmax_scale = 1.0;
}

void write_gpt2_scale(const T& model, Json& json) {
  json["scale_attn_weights"] = !model.softmax_scale.has_value();
}

void write_gpt2_activation(const T& model, Json& json) {
  write_keys({{"activation_function", &T::activation}}, model, json);
  if (model.activation == Activation::gelu_tanh) json["activation_function"] = "gelu_new";
}

}  // namespace

HfFamily gpt2() {
  const auto conv1d = [](const std::string& ours, const std::string& theirs, Blocks blocks = {}) {
    return TensorRow{.ours = ours, .theirs = theirs, .blocks = blocks, .is_transposed = true};
  };
  HfFamily family{.model_type = "gpt2",
                  .architecture = "GPT2LMHeadModel",
                  .keys = {{"n_layer", &T::num_layers, kLayers},
                           {"n_embd", &T::hidden_size, {.alias = "hidden_size"}},
                           {"n_head", &T::num_attention_heads, {.alias = "num_attention_heads"}},
                           {"", read_gpt2_heads},
                           {"n_inner", read_gpt2_inner, write_gpt2_inner},
                           {"n_positions", &T::max_position_embeddings, kPositions},
                           {"layer_norm_epsilon", &T::norm_epsilon, kPositive},
                           {"activation_function", &T::activation, {}, write_gpt2_activation},
                           {"scale_attn_weights", read_gpt2_scale, write_gpt2_scale}},
                  .prefix = "transformer.",
                  .buffers = {".attn.bias", ".attn.masked_bias"}};
  family.defaults.num_query_groups = 0;
  family.defaults.activation = Activation::gelu_tanh;
  family.add_keys(common_keys());
  family.add_keys(dropout_keys("attn_pdrop", "resid_pdrop", "embd_pdrop"));
  family.add_layer_tensors(
      {{"self_attention.linear_qkv.layer_norm_{w}", "ln_1.{w}"},
       conv1d("self_attention.linear_qkv.{w}", "attn.c_attn.{w}", kQueryKeyValue),
       conv1d("self_attention.linear_proj.{w}", "attn.c_proj.{w}"),
       {"mlp.linear_fc1.layer_norm_{w}", "ln_2.{w}"},
       conv1d("mlp.linear_fc1.{w}", "mlp.c_fc.{w}"),
       conv1d("mlp.linear_fc2.{w}", "mlp.c_proj.{w}")},
      "transformer.h.{i}.");
  family.add_tensors({{"embedding.word_embeddings.weight", "transformer.wte.weight"},
                      {"embedding.position_embeddings.weight", "transformer.wpe.weight"},
                      {"decoder.final_layernorm.{w}", "transformer.ln_f.{w}"},
                      {"output_layer.weight", "lm_head.weight"}});
  return family;
}

}  // namespace megatron::families
