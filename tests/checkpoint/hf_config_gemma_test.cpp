#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {
namespace {

using Layers = std::vector<std::int64_t>;

/// The sizes that a file must have.
Json gemma(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {
      {"model_type", model_type},     {"vocab_size", 128},      {"hidden_size", 64},
      {"intermediate_size", 112},     {"num_hidden_layers", 6}, {"num_attention_heads", 16},
      {"max_position_embeddings", 64}};
  json.merge_patch(changes);
  return json;
}

HfConfig read(const Json& json) { return parse_hf_config(json, "config.json"); }

TransformerConfig model_of(const Json& json) { return read(json).model; }

/// Expects that a fresh config.json of the model reads back as the same function, and returns it.
Json written(const TransformerConfig& model, const std::string& model_type) {
  const Json fresh = make_hf_config(model, model_type, "float32", nullptr);
  EXPECT_TRUE(forward_differences(model, model_of(fresh)).empty()) << fresh;
  return fresh;
}

// The defaults are those of the configuration classes in transformers 5.
TEST(HfGemmaConfig, HasTheDefaultsOfTheClasses) {
  for (const char* type : {"gemma", "gemma2", "gemma3_text", "vaultgemma"}) {
    const TransformerConfig model = model_of(gemma(type));
    EXPECT_EQ(model.normalization, Normalization::RMSNorm);
    EXPECT_EQ(model.norm_epsilon, 1e-6);
    EXPECT_EQ(model.activation, Activation::gelu_tanh);
    EXPECT_TRUE(model.apply_layernorm_1p && model.gated_linear_unit);
    EXPECT_FALSE(model.add_bias_linear || model.untie_embeddings_and_output_weights);
    EXPECT_EQ(model.embedding_multiplier, 8);
    EXPECT_EQ(model.kv_channels, 256);
    EXPECT_EQ(model.softmax_scale.value_or(1.0 / 16), 1.0 / 16);
    written(model, type);
  }
  const TransformerConfig first = model_of(gemma("gemma")), second = model_of(gemma("gemma2")),
                          third = model_of(gemma("gemma3_text")),
                          vault = model_of(gemma("vaultgemma"));
  EXPECT_EQ(first.query_groups(), 16);
  EXPECT_EQ(first.norm_placement, NormPlacement::pre);
  EXPECT_FALSE(first.window_size);
  EXPECT_EQ(first.final_logit_softcapping, 0);
  EXPECT_EQ(first.rotary_base, 1e4);

  EXPECT_EQ(second.query_groups(), 4);
  EXPECT_EQ(second.norm_placement, NormPlacement::sandwich);
  EXPECT_EQ(second.window_size->at(0), 4095);
  EXPECT_EQ(windowed_layers(second), (Layers{1, 0, 1, 0, 1, 0}));
  EXPECT_EQ(second.attn_logit_softcapping, 50);
  EXPECT_EQ(second.final_logit_softcapping, 30);
  EXPECT_FALSE(second.qk_layernorm || second.rotary_base_local);

  EXPECT_EQ(third.query_groups(), 4);
  EXPECT_EQ(third.norm_placement, NormPlacement::sandwich);
  EXPECT_EQ(third.window_size->at(0), 4095);
  EXPECT_EQ(windowed_layers(third), (Layers{1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(third.attn_logit_softcapping, 0);
  EXPECT_EQ(third.final_logit_softcapping, 0);
  EXPECT_TRUE(third.qk_layernorm);
  EXPECT_EQ(third.rotary_base, 1e6);
  EXPECT_EQ(third.rotary_base_local, 1e4);

  EXPECT_EQ(vault.norm_placement, NormPlacement::pre);
  EXPECT_EQ(vault.attn_logit_softcapping, 50);
}

TEST(HfGemmaConfig, ReadsScalesAndCaps) {
  Json json = gemma("gemma2", {{"query_pre_attn_scalar", 144}, {"head_dim", 128}});
  json["attn_logit_softcapping"] = nullptr;
  json["final_logit_softcapping"] = 2.5;
  const TransformerConfig model = model_of(json);
  EXPECT_EQ(model.softmax_scale, 1.0 / 12);
  EXPECT_EQ(model.attn_logit_softcapping, 0);
  EXPECT_EQ(model.final_logit_softcapping, 2.5);
  const Json fresh = written(model, "gemma2");
  EXPECT_EQ(fresh.at("query_pre_attn_scalar"), 144);
  EXPECT_TRUE(fresh.at("attn_logit_softcapping").is_null());
  EXPECT_EQ(fresh.at("hidden_activation"), "gelu_pytorch_tanh");
  EXPECT_FALSE(fresh.contains("hidden_act"));
}

// The class of transformers 4.40 takes hidden_activation, or else the tanh form; that of
// transformers 5 takes hidden_act.
TEST(HfGemmaConfig, ReadsBothNamesOfTheActivation) {
  Json json = gemma("gemma", {{"hidden_act", "gelu"}});
  EXPECT_EQ(model_of(json).activation, Activation::gelu);
  EXPECT_TRUE(read(json).notes.empty());
  json["hidden_activation"] = nullptr;
  EXPECT_EQ(model_of(json).activation, Activation::gelu_tanh);
  EXPECT_EQ(read(json).notes.size(), 1u);
  json["hidden_act"] = "gelu_pytorch_tanh";
  EXPECT_TRUE(read(json).notes.empty());
  json["hidden_activation"] = "relu";
  EXPECT_EQ(model_of(json).activation, Activation::relu);
  TransformerConfig model = model_of(json);
  model.activation = Activation::silu;
  EXPECT_EQ(make_hf_config(model, "gemma", "float32", &json).at("hidden_activation"), "silu");
}

TEST(HfGemmaConfig, ReadsRotaryParametersByLayerInEitherSpelling) {
  Json newer = gemma("gemma3_text"), older = newer;
  newer["rope_parameters"] = {
      {"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 5e5}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 500.0}}}};
  newer["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention",
                          "full_attention",    "full_attention", "full_attention"};
  older["rope_theta"] = 5e5;
  older["rope_local_base_freq"] = 500.0;
  older["rope_scaling"] = {{"rope_type", "linear"}, {"factor", 8.0}};
  older["sliding_window_pattern"] = 2;
  for (const Json& json : {newer, older}) {
    const TransformerConfig model = model_of(json);
    EXPECT_EQ(model.rotary_base, 5e5);
    EXPECT_EQ(model.rotary_base_local, 500);
    EXPECT_EQ(model.rope_scaling_type, RopeScaling::linear);
    EXPECT_EQ(model.rope_scaling_factor, 8);
    EXPECT_TRUE(read(json).notes.empty());
    const Json fresh = written(model, "gemma3_text");
    EXPECT_EQ(fresh.at("rope_parameters").at("full_attention").at("rope_theta"), 5e5);
    EXPECT_EQ(fresh.at("rope_local_base_freq"), 500);
    EXPECT_FALSE(fresh.contains("sliding_window_pattern"));
  }
  EXPECT_EQ(windowed_layers(model_of(older)), (Layers{1, 0, 1, 0, 1, 0}));
}

TEST(HfGemmaConfig, WritesModelsWithOneKindOfLayer) {
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const TransformerConfig model =
        model_of(gemma("gemma3_text", {{"layer_types", std::vector<std::string>(6, kind)}}));
    EXPECT_EQ(written(model, "gemma3_text").contains("sliding_window"),
              model.window_size.has_value());
  }
  // One base for all layers.
  TransformerConfig model = model_of(gemma("gemma3_text"));
  model.rotary_base_local.reset();
  const Json fresh = written(model, "gemma3_text");
  EXPECT_EQ(fresh.at("rope_local_base_freq"), fresh.at("rope_theta"));
}

TEST(HfGemmaConfig, RefusesWhatItCannotExpress) {
  TransformerConfig model = model_of(gemma("gemma3_text"));
  const auto expect_refusal = [&](const std::vector<std::string>& words) {
    expect_user_error([&] { make_hf_config(model, "gemma3_text", "float32", nullptr); }, words);
  };
  model.embedding_multiplier = 1;
  expect_refusal({"--embedding-multiplier"});
  model.embedding_multiplier = 8;
  model.softmax_scale = 0.3;
  expect_refusal({"--softmax-scale"});
  model.softmax_scale = 0.25;
  model.rope_scaling_type = RopeScaling::linear;  // also of the layers with a window
  model.rotary_base_local.reset();
  expect_refusal({"--rotary-base-local"});
}

TEST(HfGemmaConfig, NamesTheFieldThatIsNotSupported) {
  struct Case {
    Json json;
    std::vector<std::string> words;
  };
  Json without_width = gemma("gemma2");
  without_width["sliding_window"] = nullptr;
  const Json scaled = {{"rope_type", "linear"}, {"factor", 2.0}};
  const std::vector<Case> cases{
      {gemma("gemma", {{"attention_bias", true}}), {"attention_bias", "set it to false"}},
      {gemma("gemma", {{"use_bidirectional_attention", true}}), {"use_bidirectional_attention"}},
      {gemma("gemma3_text", {{"use_bidirectional_attention", true}}),
       {"use_bidirectional_attention", "set it to false"}},
      {gemma("gemma2", {{"final_logit_softcapping", 0}}), {"final_logit_softcapping", "above 0"}},
      {gemma("gemma2", {{"query_pre_attn_scalar", -1}}), {"query_pre_attn_scalar", "above 0"}},
      {gemma("gemma3_text", {{"attn_logit_softcapping", 50.0}}),
       {"attn_logit_softcapping", "set it to null"}},
      {gemma("gemma3_text", {{"sliding_window_pattern", 0}}), {"sliding_window_pattern"}},
      {gemma("gemma3_text", {{"rope_parameters", {{"sliding_attention", scaled}}}}),
       {"sliding_attention", "rope_type", "set it to default"}},
      {gemma("gemma3_text", {{"rope_parameters", {{"rope_theta", 5.0}}}}),
       {"rope_parameters", "full_attention"}},
      {without_width, {"sliding_window", "at least 1"}},
      {gemma("gemma3", {{"text_config", {{"model_type", "gemma3_text"}}}}),
       {"model_type", "gemma3", "of model_type 'gemma3_text'"}},
  };
  for (const Case& broken : cases)
    expect_user_error([&] { model_of(broken.json); }, broken.words, broken.json.dump());
}

}  // namespace
}  // namespace megatron
