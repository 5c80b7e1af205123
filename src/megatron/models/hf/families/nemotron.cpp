#include <nlohmann/json.hpp>

#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

/// The biases of the norms of a decoder with LayerNorm, and the norm of its MLP.
void add_layer_norms(HfFamily& family) {
  family.add_tensors({{"decoder.final_layernorm.bias", "model.norm.bias"}});
  family.add_layer_tensors({{"self_attention.linear_qkv.layer_norm_bias", "input_layernorm.bias"},
                            {"mlp.linear_fc1.layer_norm_{w}", "post_attention_layernorm.{w}"}});
}

}  // namespace

HfFamily nemotron() {
  HfFamily family = decoder("nemotron", "NemotronForCausalLM", 0,
                            {.has_head_dim = true, .partial_rotary = "partial_rotary_factor"});
  T& model = family.defaults;
  model.apply_layernorm_1p = model.untie_embeddings_and_output_weights = true;
  model.activation = Activation::squared_relu;
  model.rotary_percent = 0.5;
  model.init_method_std = 0.0134;
  family.add_keys({{"norm_eps", &T::norm_epsilon, kPositive},
                   {"attention_dropout", &T::attention_dropout, {.range = kFraction}},
                   biases()});
  add_layer_norms(family);
  family.add_layer_tensors(
      {{"mlp.linear_fc1.{w}", "mlp.up_proj.{w}"}, {"mlp.linear_fc2.{w}", "mlp.down_proj.{w}"}});
  return family;
}

HfFamily stablelm() {
  HfFamily family =
      decoder("stablelm", "StableLmForCausalLM", 32,
              {.partial_rotary = "partial_rotary_factor", .divides_hidden_size = true});
  T& model = family.defaults;
  model.activation = Activation::silu;
  model.gated_linear_unit = model.untie_embeddings_and_output_weights = true;
  model.add_bias_linear = false;
  model.rotary_percent = 0.25;
  const auto read_parallel = [](const ConfigReader& config, HfConfig& result) {
    T& read = result.model;
    read.parallel_residual = read.share_block_norm = config.boolean("use_parallel_residual", false);
  };
  family.add_keys({{"layer_norm_eps", &T::norm_epsilon, kPositive},
                   {"use_qkv_bias", &T::add_qkv_bias},
                   {"use_parallel_residual", &T::parallel_residual, read_parallel},
                   {"hidden_dropout", &T::hidden_dropout, {.range = kFraction}},
                   {"attention_dropout", &T::attention_dropout, {.range = kFraction}},
                   constant("qk_layernorm", false)});
  add_layer_norms(family);
  TensorRows mlp = mlp_tensors();
  family.add_layer_tensors(TensorRows(mlp.begin() + 1, mlp.end()));
  return family;
}

}  // namespace megatron::families
