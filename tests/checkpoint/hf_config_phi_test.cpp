// config.json of Phi-3 and of the families that descend from Llama in their own ways. Defaults are
// those of the configuration classes in transformers 5.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
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

using Layers = std::vector<std::int64_t>;

Json config_of(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type}, {"vocab_size", 131},
               {"hidden_size", 64},        {"intermediate_size", 112},
               {"num_hidden_layers", 4},   {"num_attention_heads", 8},
               {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
  json.update(changes);  // keeps null, unlike merge_patch()
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

/// Expects that a new config.json reads back as the same forward function, and returns it.
Json written(const TransformerConfig& model, const std::string& model_type) {
  Json fresh = make_hf_config(model, model_type, "float32", nullptr);
  EXPECT_TRUE(forward_differences(model, model_of(fresh)).empty()) << fresh;
  EXPECT_TRUE(
      forward_differences(model, architecture_from_json(architecture_to_json(model), "m")).empty());
  return fresh;
}

TEST(HfConfigPhi3, HasItsDefaults) {
  const TransformerConfig model = model_of(config_of("phi3", {{"num_key_value_heads", nullptr}}));
  EXPECT_EQ(model.query_groups(), 8);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.rotary_percent, 1);
  EXPECT_EQ(model.hidden_dropout, 0);
  EXPECT_TRUE(model.untie_embeddings_and_output_weights && model.gated_linear_unit);
  EXPECT_FALSE(model.window_size || model.add_bias_linear || model.add_qkv_bias);
}

TEST(HfConfigPhi3, ReadsPublishedKeys) {
  const HfConfig config =
      parse_hf_config(config_of("phi3", {{"partial_rotary_factor", 0.75},
                                         {"rope_scaling", nullptr},
                                         {"rope_theta", 250000.0},
                                         {"sliding_window", 7},
                                         {"original_max_position_embeddings", 32},
                                         {"resid_pdrop", 0.25},
                                         {"embd_pdrop", 0.0},
                                         {"tie_word_embeddings", true}}),
                      "c");
  EXPECT_EQ(config.model.rotated_channels(), 6);
  EXPECT_EQ(config.model.rotary_base, 250000);
  EXPECT_EQ(config.model.window_size->at(0), 6);
  EXPECT_EQ(config.model.hidden_dropout, 0.25);
  EXPECT_FALSE(config.model.untie_embeddings_and_output_weights);
  EXPECT_EQ(config.notes.size(), 1u);  // the dropouts differ
  const Json fresh = written(config.model, "phi3");
  EXPECT_EQ(fresh.at("partial_rotary_factor"), 0.75);
  EXPECT_EQ(fresh.at("rope_parameters").at("partial_rotary_factor"), 0.75);
  EXPECT_EQ(fresh.at("sliding_window"), 7);
}

TEST(HfConfigPhi3, RefusesScaledPositions) {
  for (const char* type : {"longrope", "su", "yarn", "linear"})
    expect_user_error(
        [&] {
          model_of(config_of("phi3", {{"rope_scaling", {{"type", type}, {"factor", 2.0}}}}));
        },
        {"config.json", "rope_scaling"}, type);
}

TEST(HfConfigPhi3, HasOneTensorForQueriesKeysAndValues) {
  const std::vector<std::string> names{
      "decoder.layers.3.self_attention.linear_qkv.weight", "decoder.layers.3.mlp.linear_fc1.weight",
      "decoder.layers.3.self_attention.linear_qkv.layer_norm_weight"};
  const auto links = map_weights(*find_hf_family("phi3"), names, 0);
  const std::string layer = "model.layers.3.";
  ASSERT_EQ(links[0].theirs.size(), 1u);
  EXPECT_EQ(links[0].theirs[0].name, layer + "self_attn.qkv_proj.weight");
  EXPECT_EQ(links[0].theirs[0].part.blocks.count, 3u);
  ASSERT_EQ(links[1].theirs.size(), 1u);
  EXPECT_EQ(links[1].theirs[0].name, layer + "mlp.gate_up_proj.weight");
  EXPECT_EQ(links[2].theirs[0].name, layer + "input_layernorm.weight");
}

TEST(HfConfigSeedOss, HasItsDefaults) {
  const HfConfig config = parse_hf_config(config_of("seed_oss", {{"num_key_value_heads", 8}}), "c");
  EXPECT_EQ(config.model.kv_channels, 128);
  EXPECT_EQ(config.model.norm_epsilon, 1e-6);
  EXPECT_TRUE(config.model.add_qkv_bias);
  EXPECT_FALSE(config.model.add_bias_linear);
  EXPECT_EQ(config.model.hidden_dropout, 0.1);
  EXPECT_EQ(config.model.attention_dropout, 0.1);
  EXPECT_EQ(config.given_training_fields.at("hidden_dropout"), "the family's default");
  EXPECT_EQ(model_of(config_of("seed_oss", {{"head_dim", nullptr}})).kv_channels, 8);
  EXPECT_EQ(written(config.model, "seed_oss").at("attention_out_bias"), false);
}

TEST(HfConfigSeedOss, ReadsBiases) {
  const TransformerConfig none = model_of(config_of("seed_oss", {{"attention_bias", false}})),
                          all = model_of(config_of(
                              "seed_oss", {{"attention_out_bias", true}, {"mlp_bias", true}}));
  EXPECT_FALSE(none.add_bias_linear || none.add_qkv_bias);
  EXPECT_TRUE(all.add_bias_linear);
  EXPECT_EQ(written(none, "seed_oss").at("attention_bias"), false);
  EXPECT_EQ(written(all, "seed_oss").at("mlp_bias"), true);
  for (const auto& [changes, word] : std::vector<std::pair<Json, std::string>>{
           {{{"mlp_bias", true}}, "mlp_bias"},
           {{{"attention_out_bias", true}}, "attention_out_bias"},
           {{{"attention_bias", false}, {"attention_out_bias", true}, {"mlp_bias", true}},
            "attention_bias"}})
    expect_user_error([&] { model_of(config_of("seed_oss", changes)); }, {"config.json", word},
                      word);
}

TEST(HfConfigHunyuan, NormsQueriesAndKeysAfterTheRotation) {
  const TransformerConfig model = model_of(config_of("hunyuan_v1_dense", {{"head_dim", 24}}));
  EXPECT_TRUE(model.qk_layernorm);
  EXPECT_EQ(model.qk_layernorm_scope, QkNormScope::head);
  EXPECT_EQ(model.qk_layernorm_placement, QkNormPlacement::after_rotary);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  written(model, "hunyuan_v1_dense");
  const std::vector<std::string> names{"decoder.layers.0.self_attention.q_layernorm.weight",
                                       "decoder.layers.0.self_attention.k_layernorm.weight"};
  const auto links = map_weights(*find_hf_family("hunyuan_v1_dense"), names, 0);
  EXPECT_EQ(links[0].theirs[0].name, "model.layers.0.self_attn.query_layernorm.weight");
  EXPECT_EQ(links[1].theirs[0].name, "model.layers.0.self_attn.key_layernorm.weight");
  expect_user_error(
      [&] {
        model_of(config_of("hunyuan_v1_dense", {{"attention_bias", true}}));
      },
      {"attention_bias"});
}

TEST(HfConfigHunyuan, TakesAlphaIntoTheBase) {
  const Json dynamic = {{"type", "dynamic"}, {"alpha", 1000.0}, {"factor", 1.0}, {"mscale", 1.0}};
  const Json json = config_of(
      "hunyuan_v1_dense", {{"head_dim", 24}, {"rope_theta", 20000.0}, {"rope_scaling", dynamic}});
  const HfConfig config = parse_hf_config(json, "c");
  EXPECT_DOUBLE_EQ(config.model.rotary_base, 20000 * std::pow(1000.0, 24.0 / 22));
  EXPECT_EQ(config.model.rope_scaling_type, RopeScaling::none);
  EXPECT_TRUE(config.notes.empty());
  EXPECT_EQ(written(config.model, "hunyuan_v1_dense").at("rope_scaling"), nullptr);
  // The original spelling stays where it says the same.
  const Json kept = make_hf_config(config.model, "hunyuan_v1_dense", "float32", &json);
  EXPECT_EQ(kept.at("rope_scaling"), dynamic);
  Json without = dynamic, negative = dynamic;
  without.erase("alpha");
  negative["alpha"] = -1.0;
  for (const Json& rope : {without, negative})
    expect_user_error(
        [&] {
          model_of(config_of("hunyuan_v1_dense", {{"rope_scaling", rope}}));
        },
        {"config.json", "rope_scaling", rope.contains("alpha") ? "alpha" : "dynamic"}, rope.dump());
}

TEST(HfConfigSmolLm3, ReadsLayersWithoutPositions) {
  const TransformerConfig model = model_of(config_of("smollm3"));
  EXPECT_EQ(nope_layers(model), (Layers{0, 0, 0, 1}));
  EXPECT_EQ(model.rotary_base, 2e6);
  EXPECT_FALSE(model.untie_embeddings_and_output_weights || model.window_size ||
               model.add_bias_linear);
  EXPECT_EQ(written(model, "smollm3").at("no_rope_layers"), (Layers{1, 1, 1, 0}));
  const Json listed = config_of("smollm3", {{"no_rope_layers", {0, 1, 1, 0, 1}}});
  EXPECT_EQ(nope_layers(model_of(listed)), (Layers{1, 0, 0, 1}));
  const Json often = config_of("smollm3", {{"no_rope_layer_interval", 2}});
  EXPECT_EQ(nope_layers(model_of(often)), (Layers{0, 1, 0, 1}));
  const Json all = config_of("smollm3", {{"no_rope_layers", {1, 1, 1, 1}}});
  EXPECT_TRUE(nope_layers(model_of(all)).empty());
  for (const auto& [changes, word] : std::vector<std::pair<Json, std::string>>{
           {{{"no_rope_layers", {1, 1}}}, "no_rope_layers"},
           {{{"no_rope_layers", {1, 1, 2, 0}}}, "no_rope_layers"},
           {{{"no_rope_layer_interval", 0}}, "no_rope_layer_interval"},
           {{{"mlp_bias", true}}, "mlp_bias"},
           {{{"layer_types", Json::array({"sliding_attention", "full_attention", "full_attention",
                                          "full_attention"})}},
            "layer_types"}})
    expect_user_error([&] { model_of(config_of("smollm3", changes)); }, {"config.json", word},
                      word);
}

TEST(HfConfigSmolLm3, HasWindowsInLayersWithoutPositions) {
  const Json windows = {{"use_sliding_window", true}, {"sliding_window", 7}};
  Json json = config_of("smollm3", windows);
  EXPECT_EQ(windowed_layers(model_of(json)), (Layers{0, 0, 0, 1}));
  EXPECT_EQ(model_of(json).window_size->at(0), 6);
  written(model_of(json), "smollm3");
  json["no_rope_layers"] = {1, 1, 1, 1};
  EXPECT_FALSE(model_of(json).window_size.has_value());
  json["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                         "sliding_attention"};
  EXPECT_EQ(windowed_layers(model_of(json)), (Layers{1, 0, 0, 1}));
  const Json fresh = written(model_of(json), "smollm3");
  EXPECT_EQ(fresh.at("layer_types"), json.at("layer_types"));
  EXPECT_FALSE(fresh.contains("max_window_layers"));
}

TEST(HfConfigArcee, HasAnMlpWithoutGate) {
  const TransformerConfig model = model_of(config_of("arcee", {{"head_dim", 24}}));
  EXPECT_EQ(model.activation, Activation::squared_relu);
  EXPECT_FALSE(model.gated_linear_unit || model.add_bias_linear);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.kv_channels, 24);
  EXPECT_EQ(written(model, "arcee").at("hidden_act"), "relu2");
  const Json biases = {{"attention_bias", true}, {"mlp_bias", true}};
  EXPECT_TRUE(model_of(config_of("arcee", biases)).add_bias_linear);
  expect_user_error(
      [&] {
        model_of(config_of("arcee", {{"attention_bias", true}}));
      },
      {"attention_bias"});
}

TEST(HfConfigOlmo, NormsOutputs) {
  for (const char* type : {"olmo2", "olmo3"}) {
    const TransformerConfig model = model_of(config_of(type));
    EXPECT_EQ(model.norm_placement, NormPlacement::output);
    EXPECT_EQ(model.qk_layernorm_scope, QkNormScope::all_heads);
    EXPECT_EQ(model.qk_layernorm_placement, QkNormPlacement::before_rotary);
    EXPECT_EQ(model.norm_epsilon, 1e-5);
    EXPECT_EQ(model.rotary_base, std::string(type) == "olmo2" ? 1e4 : 5e5);
    written(model, type);
    expect_user_error(
        [&] {
          model_of(config_of(type, {{"attention_bias", true}}));
        },
        {"attention_bias"});
  }
  const std::vector<std::string> names{"decoder.layers.1.post_self_attn_layernorm.weight",
                                       "decoder.layers.1.post_mlp_layernorm.weight"};
  const auto links = map_weights(*find_hf_family("olmo2"), names, 0);
  EXPECT_EQ(links[0].theirs[0].name, "model.layers.1.post_attention_layernorm.weight");
  EXPECT_EQ(links[1].theirs[0].name, "model.layers.1.post_feedforward_layernorm.weight");
}

const Json kYarn = {{"rope_type", "yarn"},
                    {"factor", 4.0},
                    {"original_max_position_embeddings", 16},
                    {"attention_factor", 1.2},
                    {"rope_theta", 500000.0}};

TEST(HfConfigOlmo3, ScalesPositionsOfFullAttentionAlone) {
  const TransformerConfig plain = model_of(config_of("olmo3"));
  EXPECT_EQ(windowed_layers(plain), (Layers{1, 1, 1, 0}));
  EXPECT_EQ(plain.window_size->at(0), 4095);
  EXPECT_FALSE(canonical_architecture(plain).rotary_base_local.has_value());
  Json scaling = kYarn;
  scaling.erase("rope_theta");
  const Json older = config_of("olmo3", {{"rope_scaling", scaling}, {"rope_theta", 500000}});
  Json newer = config_of("olmo3");
  newer["rope_parameters"] = {{"full_attention", kYarn},
                              {"sliding_attention", {{"rope_type", "default"}}}};
  for (const Json& json : {older, newer}) {
    const TransformerConfig model = model_of(json);
    EXPECT_EQ(model.rope_scaling_type, RopeScaling::yarn);
    EXPECT_EQ(model.rope_scaling_factor, 4);
    EXPECT_EQ(model.rope_original_max_position_embeddings, 16);
    EXPECT_EQ(model.rotary_base, 500000);
    EXPECT_EQ(model.rotary_base_local, 500000);
    const Json fresh = written(model, "olmo3");
    EXPECT_EQ(fresh.at("rope_parameters").at("full_attention").at("rope_type"), "yarn");
    EXPECT_EQ(fresh.at("rope_parameters").at("sliding_attention").at("rope_type"), "default");
    EXPECT_EQ(fresh.at("rope_scaling").at("rope_type"), "yarn");
  }
  TransformerConfig scaled_windows = model_of(older);
  scaled_windows.rotary_base_local.reset();
  expect_user_error([&] { make_hf_config(scaled_windows, "olmo3", "float32", nullptr); },
                    {"olmo3", "--rotary-base-local"});
}

TEST(HfConfigOlmo3, HasABaseForEachTypeOfLayer) {
  Json json =
      config_of("olmo3", {{"layer_types", Json::array({"full_attention", "full_attention",
                                                       "sliding_attention", "full_attention"})},
                          {"sliding_window", 7}});
  json["rope_parameters"] = {
      {"full_attention", {{"rope_type", "default"}, {"rope_theta", 2e4}}},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 300}}}};
  const TransformerConfig model = model_of(json);
  EXPECT_EQ(windowed_layers(model), (Layers{0, 0, 1, 0}));
  EXPECT_EQ(model.rotary_base, 2e4);
  EXPECT_EQ(model.rotary_base_local, 300);
  const Json fresh = written(model, "olmo3");
  EXPECT_FALSE(fresh.contains("rope_theta") || fresh.contains("rope_scaling"));
  Json equal = json;
  equal["rope_parameters"]["sliding_attention"]["rope_theta"] = 2e4;
  EXPECT_FALSE(canonical_architecture(model_of(equal)).rotary_base_local.has_value());
}

TEST(HfConfigOlmo3, RefusesWhatReleasesReadDifferently) {
  const Json scaled = {{"sliding_attention", kYarn}};
  for (const auto& [changes, word] : std::vector<std::pair<Json, std::string>>{
           {{{"rope_theta", 1e4}}, "rope_theta"},
           {{{"rope_parameters", kYarn}}, "rope_parameters"},
           {{{"rope_parameters", scaled}}, "rope_type"},
           {{{"rope_scaling", 3}}, "rope_scaling"},
           {{{"rope_scaling", {{"rope_type", "longrope"}}}}, "longrope"},
           {{{"rope_parameters", {{"full_attention", 3}}}}, "rope_parameters"},
           {{{"sliding_window", nullptr}}, "sliding_window"}})
    expect_user_error([&] { model_of(config_of("olmo3", changes)); }, {"config.json", word},
                      changes.dump());
}

TEST(HfConfigExaone4, RotatesOnlyInLayersWithAWindow) {
  const TransformerConfig model = model_of(config_of("exaone4", {{"sliding_window", 7}}));
  EXPECT_EQ(model.norm_placement, NormPlacement::output);
  EXPECT_TRUE(model.qk_layernorm && model.qk_layernorm_scope == QkNormScope::head);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(windowed_layers(model), (Layers{1, 1, 1, 0}));
  EXPECT_EQ(nope_layers(model), (Layers{0, 0, 0, 1}));
  EXPECT_EQ(model_of(config_of("exaone4")).window_size->at(0), 4095);
  written(model, "exaone4");
  const Json often = config_of("exaone4", {{"sliding_window_pattern", 2}});
  EXPECT_EQ(nope_layers(model_of(often)), (Layers{0, 1, 0, 1}));
  const Json types =
      Json::array({"full_attention", "sliding_attention", "sliding_attention", "full_attention"});
  const Json listed =
      config_of("exaone4", {{"sliding_window_pattern", "LLLG"}, {"layer_types", types}});
  EXPECT_EQ(windowed_layers(model_of(listed)), (Layers{0, 1, 1, 0}));
  EXPECT_EQ(nope_layers(model_of(listed)), (Layers{1, 0, 0, 1}));
}

TEST(HfConfigExaone4, RotatesEverywhereWithoutWindows) {
  const Json full =
      Json::array({"full_attention", "full_attention", "full_attention", "full_attention"});
  const Json none = {{"sliding_window", nullptr}, {"sliding_window_pattern", nullptr}};
  const TransformerConfig model = model_of(config_of("exaone4", none));
  EXPECT_FALSE(model.window_size.has_value());
  EXPECT_TRUE(nope_layers(model).empty());
  EXPECT_EQ(written(model, "exaone4").at("sliding_window"), nullptr);
  // A window that no layer has still takes the positions away.
  const TransformerConfig bare = model_of(config_of("exaone4", {{"layer_types", full}}));
  EXPECT_FALSE(bare.window_size.has_value());
  EXPECT_EQ(nope_layers(bare), (Layers{1, 1, 1, 1}));
  EXPECT_EQ(written(bare, "exaone4").at("sliding_window"), 4096);
  TransformerConfig other = model_of(config_of("exaone4"));
  set_nope(other, {1, 0, 0, 0});
  expect_user_error([&] { make_hf_config(other, "exaone4", "float32", nullptr); },
                    {"exaone4", "--no-rope-freq"});
  for (const auto& [changes, word] : std::vector<std::pair<Json, std::string>>{
           {{{"sliding_window_pattern", "LLLG"}}, "sliding_window_pattern"},
           {{{"sliding_window_pattern", nullptr}}, "sliding_window_pattern"},
           {{{"sliding_window_pattern", 0}}, "sliding_window_pattern"},
           {{{"sliding_window", 0}}, "sliding_window"}})
    expect_user_error([&] { model_of(config_of("exaone4", changes)); }, {"config.json", word},
                      changes.dump());
}

TEST(HfConfigPhi3, SurvivesRandomDamage) {
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (const char* type : {"phi3", "hunyuan_v1_dense", "smollm3", "olmo3", "exaone4"}) {
    Json json = config_of(type, {{"sliding_window", 7}, {"rope_scaling", kYarn}});
    json["rope_parameters"] = {{"full_attention", kYarn}, {"sliding_attention", Json::object()}};
    if (std::string(type) != "olmo3") json.erase("rope_parameters");
    if (std::string(type) == "phi3") json.erase("rope_scaling");
    if (std::string(type) == "hunyuan_v1_dense")
      json["rope_scaling"] = {{"type", "dynamic"}, {"alpha", 1000.0}};
    EXPECT_NO_THROW(model_of(json)) << type;
    texts.push_back(json.dump());
  }
  for (std::size_t round = 0; round < 2000; ++round) {
    try {
      parse_hf_config(parse_json(mutate(texts[round % texts.size()], random), "c"), "c");
    } catch (const UserError&) {  // expected of a damaged file; anything else is a bug
    }
  }
}

}  // namespace
}  // namespace megatron
