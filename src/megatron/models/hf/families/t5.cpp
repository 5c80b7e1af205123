#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/words.h"
#include "megatron/models/hf/config_reader.h"
#include "megatron/models/hf/families/families.h"
#include "megatron/models/hf/families/family_parts.h"

namespace megatron::families {
namespace {

struct Projection {
  std::string_view name;  ///< feed_forward_proj
  Activation activation;
  bool is_gated;
};
constexpr std::array<Projection, 6> kProjections{{{"relu", Activation::relu, false},
                                                  {"gelu", Activation::gelu, false},
                                                  {"gelu_new", Activation::gelu_tanh, false},
                                                  {"gated-gelu", Activation::gelu_tanh, true},
                                                  {"gated-silu", Activation::silu, true},
                                                  {"gated-relu", Activation::relu, true}}};

void read_layers(const ConfigReader& config, HfConfig& result) {
  const std::int64_t encoder = config.size("num_layers", kMostLayers);
  result.model.decoder_num_layers = config.size("num_decoder_layers", kMostLayers, encoder);
  result.model.num_layers = encoder + result.model.decoder_num_layers;
}

void write_layers(const T& model, Json& json) {
  json["num_layers"] = model.encoder_num_layers();
  json["num_decoder_layers"] = model.decoder_num_layers;
}

/// The key is absent where the class's default holds, which `otherwise` names.
KeyRow projection(const std::string& otherwise) {
  const std::string key = "feed_forward_proj";
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    const std::string name = config.text(key, otherwise);
    const auto* const found = std::ranges::find(kProjections, name, &Projection::name);
    if (found == kProjections.end())
      config.unsupported(
          key, "supported: " + joined_text(kProjections, ", ", [](const Projection& projection) {
                 return std::string(projection.name);
               }));
    result.model.activation = found->activation;
    result.model.gated_linear_unit = found->is_gated;
  };
  return {key, read, [=](const T& model, Json& json) {
            for (const Projection& one : kProjections)
              if (one.activation == model.activation && one.is_gated == model.gated_linear_unit)
                json[key] = std::string(one.name);
          }};
}

double scale_of(const T& model) { return 1 / std::sqrt(static_cast<double>(model.hidden_size)); }

/// T5 scales the rows that a tied output layer reads. transformers 5 has a key for it, and ties
/// models of older files without it.
KeyRow output_scale() {
  const std::string key = "scale_decoder_outputs";
  const auto read = [=](const ConfigReader& config, HfConfig& result) {
    if (config.boolean(key, config.boolean("tie_word_embeddings", true)))
      result.model.logit_scale = scale_of(result.model);
  };
  return {key, read,
          [=](const T& model, Json& json) { json[key] = model.logit_scale == scale_of(model); }};
}

/// The tensors of a stack, in whose layers a number counts the blocks.
TensorRows stack_tensors(const std::string& stack, bool is_decoder) {
  TensorRows rows;
  const auto add = [&](const std::string& ours, const std::string& theirs, Blocks blocks = {},
                       std::optional<bool> is_gated = {}) {
    rows.push_back({.ours = stack + ".layers.{i}." + ours,
                    .theirs = stack + ".block.{i}.layer." + theirs,
                    .blocks = blocks,
                    .is_gated = is_gated});
  };
  add("self_attention.linear_qkv.layer_norm_weight", "0.layer_norm.weight");
  add("self_attention.linear_qkv.weight", "0.SelfAttention.q.weight", kQuery);
  add("self_attention.linear_qkv.weight", "0.SelfAttention.k.weight", kKey);
  add("self_attention.linear_qkv.weight", "0.SelfAttention.v.weight", kValue);
  add("self_attention.linear_proj.weight", "0.SelfAttention.o.weight");
  if (is_decoder) {
    add("pre_cross_attn_layernorm.weight", "1.layer_norm.weight");
    add("cross_attention.linear_q.weight", "1.EncDecAttention.q.weight");
    add("cross_attention.linear_kv.weight", "1.EncDecAttention.k.weight", {0, 1});
    add("cross_attention.linear_kv.weight", "1.EncDecAttention.v.weight", {1, 1});
    add("cross_attention.linear_proj.weight", "1.EncDecAttention.o.weight");
  }
  const std::string mlp = is_decoder ? "2." : "1.";
  add("mlp.linear_fc1.layer_norm_weight", mlp + "layer_norm.weight");
  add("mlp.linear_fc1.weight", mlp + "DenseReluDense.wi.weight", {}, false);
  add("mlp.linear_fc1.weight", mlp + "DenseReluDense.wi_0.weight", kGate, true);
  add("mlp.linear_fc1.weight", mlp + "DenseReluDense.wi_1.weight", kUp, true);
  add("mlp.linear_fc2.weight", mlp + "DenseReluDense.wo.weight");
  rows.push_back({stack + ".final_layernorm.weight", stack + ".final_layer_norm.weight"});
  return rows;
}

HfFamily t5_like(const std::string& model_type, const std::string& architecture,
                 const std::string& feed_forward) {
  HfFamily family{
      .model_type = model_type,
      .architecture = architecture,
      .keys = {{"num_layers", read_layers, write_layers},
               {"d_model", &T::hidden_size},
               {"num_heads", &T::num_attention_heads},
               {"d_kv", &T::kv_channels},
               {"d_ff", &T::ffn_hidden_size},
               {"vocab_size", &T::vocab_size, {.most = kMaxSize}},
               {"tie_word_embeddings", &T::untie_embeddings_and_output_weights, kNegated},
               {"relative_attention_num_buckets", &T::relative_attention_num_buckets},
               {"relative_attention_max_distance", &T::relative_attention_max_distance},
               {"layer_norm_epsilon", &T::norm_epsilon, kPositive},
               {"dropout_rate", &T::hidden_dropout, {.range = kFraction}},
               {"dropout_rate", &T::attention_dropout, {.range = kFraction}},
               projection(feed_forward),
               constant("is_encoder_decoder", true)},
      .prefix = "",
      .buffers = {"coder.embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"},
      .network = "t5"};
  T& model = family.defaults;
  model.num_query_groups = 0;
  model.normalization = Normalization::RMSNorm;
  model.norm_epsilon = 1e-6;
  model.add_bias_linear = false;
  model.position_embedding_type = PositionEmbedding::relative;
  model.softmax_scale = 1.0;
  model.hidden_dropout = model.attention_dropout = 0.1;
  // What the decoder begins with follows from the tokenizer.
  family.keys.emplace_back(
      "decoder_start_token_id", [](const ConfigReader&, HfConfig&) {}, [](const T&, Json&) {});
  for (const bool is_decoder : {false, true})
    family.add_tensors(stack_tensors(is_decoder ? "decoder" : "encoder", is_decoder));
  family.add_tensors({{"embedding.word_embeddings.weight", "shared.weight"},
                      {"lm_head.output_layer.weight", "lm_head.weight"}});
  return family;
}

/// Adds the biases of each stack, or those of each layer.
void add_relative_positions(HfFamily& family, bool per_layer) {
  family.defaults.relative_attention_per_layer = per_layer;
  const std::string name = "relative_attention_bias.weight";
  for (const std::string stack : {"encoder", "decoder"})
    family.add_tensors(
        {{per_layer ? stack + ".layers.{i}.self_attention.relative_pos_emb." + name
                    : stack + "_relative_pos_emb." + name,
          stack + (per_layer ? ".block.{i}" : ".block.0") + ".layer.0.SelfAttention." + name}});
}

}  // namespace

HfFamily t5() {
  HfFamily family = t5_like("t5", "T5ForConditionalGeneration", "relu");
  family.keys.push_back(output_scale());
  add_relative_positions(family, /*per_layer=*/false);
  return family;
}

HfFamily mt5() {
  HfFamily family = t5_like("mt5", "MT5ForConditionalGeneration", "gated-gelu");
  add_relative_positions(family, /*per_layer=*/false);
  return family;
}

HfFamily umt5() {
  HfFamily family = t5_like("umt5", "UMT5ForConditionalGeneration", "gated-gelu");
  // The rows that a tied output layer reads are scaled.
  family.keys.emplace_back(
      "tie_word_embeddings",
      [](const ConfigReader&, HfConfig& result) {
        if (!result.model.untie_embeddings_and_output_weights)
          result.model.logit_scale = scale_of(result.model);
      },
      [](const T&, Json&) {});
  add_relative_positions(family, /*per_layer=*/true);
  return family;
}

}  // namespace megatron::families
