#include <nlohmann/json.hpp>

#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {

HfFamily gpt_neox() {
  HfFamily family{.model_type = "gpt_neox",
                  .architecture = "GPTNeoXForCausalLM",
                  .keys = common_keys(),
                  .prefix = "gpt_neox.",
                  .buffers = {".attention.bias", ".attention.masked_bias"}};
  T& model = family.defaults;
  model.num_query_groups = 0;
  model.position_embedding_type = PositionEmbedding::rope;
  model.rotary_percent = 0.25;
  model.parallel_residual = model.untie_embeddings_and_output_weights = true;
  model.hidden_dropout = model.attention_dropout = 0;
  family.add_keys({{"num_hidden_layers", &T::num_layers, {.most = kMostLayers}},
                   {"hidden_size", &T::hidden_size},
                   {"intermediate_size", &T::ffn_hidden_size},
                   {"max_position_embeddings", &T::max_position_embeddings, {.most = kMaxSize}},
                   {"hidden_act", &T::activation},
                   {"layer_norm_eps", &T::norm_epsilon, kPositive},
                   {"use_parallel_residual", &T::parallel_residual},
                   {"hidden_dropout", &T::hidden_dropout, {.range = kFraction}},
                   {"attention_dropout", &T::attention_dropout, {.range = kFraction}},
                   constant("attention_bias", true)});
  family.add_keys(attention_keys({.partial_rotary = "rotary_pct",
                                  .rotary_base = "rotary_emb_base",
                                  .divides_hidden_size = true}));
  std::erase_if(family.keys, [](const KeyRow& row) { return row.key == "num_key_value_heads"; });
  // The rows of its fused projection are q, k and v of one head after the other, as ours are.
  family.add_layer_tensors({{"self_attention.linear_qkv.layer_norm_{w}", "input_layernorm.{w}"},
                            {"self_attention.linear_qkv.{w}", "attention.query_key_value.{w}"},
                            {"self_attention.linear_proj.{w}", "attention.dense.{w}"},
                            {"mlp.linear_fc1.layer_norm_{w}", "post_attention_layernorm.{w}"},
                            {"mlp.linear_fc1.{w}", "mlp.dense_h_to_4h.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.dense_4h_to_h.{w}"}},
                           "gpt_neox.layers.{i}.");
  family.add_tensors({{"embedding.word_embeddings.weight", "gpt_neox.embed_in.weight"},
                      {"decoder.final_layernorm.{w}", "gpt_neox.final_layer_norm.{w}"},
                      {"output_layer.weight", "embed_out.weight"},
                      stacked("output_layer.weight", "lm_head.weight")});
  return family;
}

HfFamily phi() {
  HfFamily family =
      decoder("phi", "PhiForCausalLM", 0, {.partial_rotary = "partial_rotary_factor"});
  T& model = family.defaults;
  model.activation = Activation::gelu_tanh;
  model.parallel_residual = model.share_block_norm = true;
  model.untie_embeddings_and_output_weights = model.add_output_bias = true;
  model.rotary_percent = 0.5;
  family.add_keys(
      {{"layer_norm_eps", &T::norm_epsilon, kPositive}, {"qk_layernorm", &T::qk_layernorm}});
  family.add_keys(dropout_keys("attention_dropout", "resid_pdrop", "embd_pdrop"));
  std::erase_if(family.tensors, [](const TensorRow& row) {
    return row.theirs.ends_with("o_proj.{w}") || row.theirs == "model.norm.weight";
  });
  const std::string attention = "self_attention.", theirs = "self_attn.";
  family.add_layer_tensors({{attention + "linear_qkv.layer_norm_bias", "input_layernorm.bias"},
                            {attention + "q_layernorm.{w}", theirs + "q_layernorm.{w}"},
                            {attention + "k_layernorm.{w}", theirs + "k_layernorm.{w}"},
                            {attention + "linear_proj.{w}", theirs + "dense.{w}"},
                            {"mlp.linear_fc1.{w}", "mlp.fc1.{w}"},
                            {"mlp.linear_fc2.{w}", "mlp.fc2.{w}"}});
  family.add_tensors({{"decoder.final_layernorm.{w}", "model.final_layernorm.{w}"},
                      {"output_layer.bias", "lm_head.bias"}});
  return family;
}

}  // namespace megatron::families
