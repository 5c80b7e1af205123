// GPT-NeoX, Nemotron, StableLM, Phi, Granite and Cohere. The expected values are the defaults of
// their configuration classes in transformers 5.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "checkpoint/expect_user_error.h"
#include "checkpoint/mutate.h"
#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

Json config_of(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type}, {"vocab_size", 128},
               {"hidden_size", 64},        {"intermediate_size", 112},
               {"num_hidden_layers", 4},   {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"max_position_embeddings", 256}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

/// Expects that a new config.json of the model reads back as the same forward function, and returns
/// it.
Json written(const TransformerConfig& model, const std::string& model_type) {
  const Json fresh = make_hf_config(model, model_type, "float32", nullptr);
  EXPECT_TRUE(forward_differences(model, model_of(fresh)).empty()) << fresh;
  return fresh;
}

TEST(HfConfig, ReadsGptNeox) {
  const HfConfig config = parse_hf_config(config_of("gpt_neox", {{"hidden_dropout", 0.25}}), "c");
  const TransformerConfig& model = config.model;
  EXPECT_EQ(model.normalization, Normalization::LayerNorm);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.activation, Activation::gelu);
  EXPECT_TRUE(model.parallel_residual && model.add_bias_linear && model.add_norm_bias &&
              model.untie_embeddings_and_output_weights);
  EXPECT_FALSE(model.share_block_norm || model.gated_linear_unit);
  EXPECT_EQ(model.rotary_base, 10000);
  EXPECT_EQ(model.rotary_percent, 0.25);
  EXPECT_EQ(model.query_groups(), 4) << "the class has no groups";
  EXPECT_EQ(config.given_training_fields.at("hidden_dropout"), "config.json");
  EXPECT_EQ(model.hidden_dropout, 0.25);
  EXPECT_EQ(model.attention_dropout, 0);

  const Json first = config_of("gpt_neox", {{"rotary_emb_base", 700},
                                            {"rotary_pct", 0.5},
                                            {"rope_theta", 5},
                                            {"use_parallel_residual", false}});
  const Json newer = config_of(
      "gpt_neox", {{"rope_parameters", {{"rope_theta", 700}, {"partial_rotary_factor", 0.5}}},
                   {"use_parallel_residual", false}});
  EXPECT_EQ(model_of(first).rotary_base, 700);
  EXPECT_EQ(model_of(first).rotary_percent, 0.5);
  EXPECT_FALSE(model_of(first).parallel_residual);
  EXPECT_TRUE(forward_differences(model_of(first), model_of(newer)).empty());
  const Json fresh = written(model_of(first), "gpt_neox");
  EXPECT_EQ(fresh.at("rotary_emb_base"), 700);
  EXPECT_EQ(fresh.at("rotary_pct"), 0.5);
  TransformerConfig grouped = model;
  grouped.group_query_attention = true;
  grouped.num_query_groups = 2;
  expect_user_error([&] { make_hf_config(grouped, "gpt_neox", "float32", nullptr); },
                    {"gpt_neox", "--num-query-groups"});
}

TEST(HfConfig, OutputLayerOfGptNeoxHasNoPrefix) {
  const HfFamily& family = *find_hf_family("gpt_neox");
  EXPECT_EQ(full_hf_name(family, "embed_out.weight"), "embed_out.weight");
  EXPECT_EQ(full_hf_name(family, "embed_in.weight"), "gpt_neox.embed_in.weight");
  EXPECT_TRUE(is_hf_buffer(family, "gpt_neox.layers.0.attention.bias"));
  EXPECT_FALSE(is_hf_buffer(family, "gpt_neox.layers.0.attention.dense.bias"));
}

TEST(HfConfig, ReadsNemotron) {
  const TransformerConfig model = model_of(config_of("nemotron"));
  EXPECT_TRUE(model.apply_layernorm_1p && model.untie_embeddings_and_output_weights);
  EXPECT_FALSE(model.add_bias_linear || model.gated_linear_unit);
  EXPECT_EQ(model.activation, Activation::squared_relu);
  EXPECT_EQ(model.rotary_percent, 0.5);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.init_method_std, 0.0134);
  const TransformerConfig other =
      model_of(config_of("nemotron", {{"attention_bias", true},
                                      {"mlp_bias", true},
                                      {"head_dim", 24},
                                      {"partial_rotary_factor", 0.25}}));
  EXPECT_TRUE(other.add_bias_linear);
  EXPECT_EQ(other.rotated_channels(), 6);
  EXPECT_EQ(written(other, "nemotron").at("partial_rotary_factor"), 0.25);
}

TEST(HfConfig, ReadsStableLm) {
  const TransformerConfig model = model_of(config_of("stablelm"));
  EXPECT_TRUE(model.gated_linear_unit && model.add_norm_bias);
  EXPECT_FALSE(model.add_bias_linear || model.add_qkv_bias || model.parallel_residual);
  EXPECT_EQ(model.rotary_percent, 0.25);
  const TransformerConfig parallel =
      model_of(config_of("stablelm", {{"use_parallel_residual", true}, {"use_qkv_bias", true}}));
  EXPECT_TRUE(parallel.parallel_residual && parallel.share_block_norm && parallel.add_qkv_bias);
  written(model, "stablelm");
  written(parallel, "stablelm");
}

TEST(HfConfig, ReadsPhi) {
  const HfConfig config = parse_hf_config(config_of("phi", {{"resid_pdrop", 0.1}}), "c");
  const TransformerConfig& model = config.model;
  EXPECT_EQ(model.activation, Activation::gelu_tanh);
  EXPECT_TRUE(model.parallel_residual && model.share_block_norm && model.add_output_bias &&
              model.add_bias_linear && model.untie_embeddings_and_output_weights);
  EXPECT_FALSE(model.qk_layernorm || model.gated_linear_unit);
  EXPECT_EQ(model.rotary_percent, 0.5);
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(config.notes.size(), 1u) << "the embedding has no dropout";
  written(model, "phi");
  const TransformerConfig normed = model_of(config_of("phi", {{"qk_layernorm", true}}));
  EXPECT_EQ(written(normed, "phi").at("qk_layernorm"), true);
}

TEST(HfConfig, ReadsGranite) {
  EXPECT_EQ(model_of(config_of("granite")).softmax_scale, 1);
  const Json changes = {{"attention_multiplier", 0.25},
                        {"embedding_multiplier", 12},
                        {"residual_multiplier", 0.22},
                        {"logits_scaling", 13}};
  for (const char* type : {"granite", "granitemoe"}) {
    const TransformerConfig model = model_of(config_of(type, changes));
    EXPECT_EQ(model.norm_epsilon, 1e-6);
    EXPECT_EQ(model.softmax_scale, 0.25);
    EXPECT_EQ(model.embedding_multiplier, 12);
    EXPECT_EQ(model.residual_multiplier, 0.22);
    EXPECT_EQ(model.logit_scale, 1.0 / 13);
    const Json fresh = written(model, type);
    EXPECT_EQ(fresh.at("logits_scaling"), 13.0);
    EXPECT_EQ(fresh.at("attention_multiplier"), 0.25);
  }
  const TransformerConfig experts = model_of(config_of("granitemoe"));
  EXPECT_EQ(experts.moe.num_experts, 8);
  EXPECT_EQ(experts.moe.router_topk, 2);
  EXPECT_EQ(experts.moe.ffn_hidden_size, 112);
  EXPECT_FALSE(experts.moe.router_pre_softmax);
}

TEST(HfConfig, ReadsCohere) {
  const TransformerConfig model = model_of(config_of("cohere"));
  EXPECT_TRUE(model.parallel_residual && model.share_block_norm && model.rotary_interleaved &&
              model.gated_linear_unit);
  EXPECT_FALSE(model.add_norm_bias || model.add_bias_linear || model.qk_layernorm ||
               model.untie_embeddings_and_output_weights);
  EXPECT_EQ(model.normalization, Normalization::LayerNorm);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.rotary_base, 500000);
  EXPECT_EQ(model.logit_scale, 0.0625);
  const TransformerConfig normed =
      model_of(config_of("cohere", {{"use_qk_norm", true}, {"logit_scale", 0.3}}));
  EXPECT_EQ(normed.qk_layernorm_scope, QkNormScope::each_head);
  EXPECT_EQ(written(normed, "cohere").at("use_qk_norm"), true);
  EXPECT_EQ(written(model, "cohere").at("use_qk_norm"), false);
}

TEST(HfConfig, ReadsCohere2) {
  using Layers = std::vector<std::int64_t>;
  const TransformerConfig model = model_of(config_of("cohere2"));
  EXPECT_EQ(model.rotary_base, 10000);
  EXPECT_EQ(model.window_size->at(0), 4095);
  EXPECT_EQ(windowed_layers(model), (Layers{1, 1, 1, 0}));
  EXPECT_EQ(nope_layers(model), (Layers{0, 0, 0, 1}));
  Json json = config_of("cohere2", {{"sliding_window", 7}, {"sliding_window_pattern", 2}});
  EXPECT_EQ(windowed_layers(model_of(json)), (Layers{1, 0, 1, 0}));
  const Json fresh = written(model_of(json), "cohere2");
  EXPECT_FALSE(fresh.contains("sliding_window_pattern"));
  EXPECT_EQ(fresh.at("layer_types")[1], "full_attention");
  json["layer_types"] = Json::array(
      {"full_attention", "sliding_attention", "sliding_attention", "sliding_attention"});
  EXPECT_EQ(nope_layers(model_of(json)), (Layers{1, 0, 0, 0}));
  json["layer_types"] =
      Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  EXPECT_FALSE(model_of(json).window_size.has_value());
  EXPECT_EQ(nope_layers(model_of(json)), (Layers{1, 1, 1, 1}));
  EXPECT_FALSE(written(model_of(json), "cohere2").contains("sliding_window"));
}

TEST(HfConfig, RefusesWhatModelsWithParallelBlocksLack) {
  Json no_window = config_of("cohere2");
  no_window["sliding_window"] = nullptr;
  expect_user_error([&] { model_of(no_window); }, {"sliding_window", "null"});
  for (const auto& [type, changes, word] : std::vector<std::tuple<std::string, Json, std::string>>{
           {"gpt_neox", {{"attention_bias", false}}, "attention_bias"},
           {"gpt_neox", {{"hidden_size", 66}}, "hidden_size"},
           {"gpt_neox", {{"rotary_pct", 0}}, "rotary_pct"},
           {"nemotron", {{"mlp_bias", true}}, "mlp_bias"},
           {"nemotron", {{"partial_rotary_factor", 1.5}}, "partial_rotary_factor"},
           {"stablelm", {{"qk_layernorm", true}}, "qk_layernorm"},
           {"granite", {{"attention_bias", true}}, "attention_bias"},
           {"granite", {{"logits_scaling", 0}}, "logits_scaling"},
           {"granitemoe", {{"attention_bias", true}}, "attention_bias"},
           {"cohere", {{"attention_bias", true}}, "attention_bias"},
           {"cohere", {{"logit_scale", 0}}, "logit_scale"},
           {"cohere2", {{"sliding_window_pattern", 0}}, "sliding_window_pattern"}})
    expect_user_error([&] { model_of(config_of(type, changes)); }, {"config.json", word});
}

TEST(HfConfig, ModelsWithParallelBlocksSurviveRandomDamage) {
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (const char* type : {"gpt_neox", "stablelm", "phi", "granitemoe", "cohere", "cohere2"})
    texts.push_back(config_of(type, {{"rotary_pct", 0.5},
                                     {"partial_rotary_factor", 1},
                                     {"logits_scaling", 2},
                                     {"attention_multiplier", 0.5},
                                     {"use_qk_norm", true},
                                     {"sliding_window_pattern", 2}})
                        .dump());
  for (std::size_t round = 0; round < 2000; ++round) {
    try {
      parse_hf_config(parse_json(mutate(texts[round % texts.size()], random), "c"), "c");
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
}

}  // namespace
}  // namespace megatron
