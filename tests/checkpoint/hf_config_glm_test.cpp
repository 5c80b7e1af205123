// The families GLM, Ministral, MiniMax M2, ERNIE 4.5, dots.llm1, Solar Open, FlexOlmo and
// HunYuan. Defaults are those of their configuration classes in transformers 5.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
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

Json config(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type}, {"vocab_size", 131},
               {"hidden_size", 64},        {"intermediate_size", 112},
               {"num_hidden_layers", 4},   {"num_attention_heads", 4},
               {"num_key_value_heads", 2}, {"max_position_embeddings", 64}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

/// Checks that a model has the same forward function after it has been written and read.
void expect_round_trip(const Json& json) {
  const HfConfig read = parse_hf_config(json, "c");
  const Json fresh = make_hf_config(read.model, read.model_type, "float32", nullptr);
  EXPECT_TRUE(forward_differences(read.model, model_of(fresh)).empty()) << fresh;
  const TransformerConfig stored =
      architecture_from_json(architecture_to_json(read.model), "manifest");
  EXPECT_TRUE(forward_differences(read.model, stored).empty()) << json;
}

void expect_refusals(const std::string& model_type, const Json& base,
                     const std::vector<std::pair<Json, std::string>>& cases) {
  for (const auto& [changes, word] : cases) {
    Json json = config(model_type, base);
    json.merge_patch(changes);
    if (changes.contains("partial_rotary_factor") && changes["partial_rotary_factor"].is_null())
      json["partial_rotary_factor"] = nullptr;
    expect_user_error([&] { model_of(json); }, {"config.json", word}, json.dump());
  }
}

TEST(HfConfigGlm, ReadsDenseModels) {
  for (const char* type : {"glm", "glm4"}) {
    const TransformerConfig model = model_of(config(type));
    EXPECT_EQ(model.kv_channels, 128);
    EXPECT_EQ(model.rotary_percent, 0.5);
    EXPECT_TRUE(model.rotary_interleaved && model.add_qkv_bias && !model.add_bias_linear);
    EXPECT_EQ(model.norm_epsilon, 1.5625e-7);
    EXPECT_EQ(model.rotary_base, 10000);
    EXPECT_TRUE(model.untie_embeddings_and_output_weights);
    EXPECT_EQ(model.norm_placement,
              type == std::string("glm") ? NormPlacement::pre : NormPlacement::sandwich);
    expect_round_trip(config(type));
    expect_round_trip(config(type, {{"head_dim", 16},
                                    {"attention_bias", false},
                                    {"tie_word_embeddings", true},
                                    {"rope_parameters",
                                     {{"rope_type", "linear"},
                                      {"factor", 2.0},
                                      {"rope_theta", 5000.0},
                                      {"partial_rotary_factor", 0.25}}}}));
    expect_refusals(type, Json::object(),
                    {{{{"partial_rotary_factor", nullptr}}, "partial_rotary_factor"},
                     {{{"partial_rotary_factor", 1.5}}, "partial_rotary_factor"}});
  }
}

TEST(HfConfigGlm, ReadsExpertsOfDeepseekWithUsualAttention) {
  const TransformerConfig glm = model_of(config("glm4_moe", {{"head_dim", 24}}));
  EXPECT_EQ(glm.kv_channels, 24);
  EXPECT_EQ(glm.rotary_percent, 0.5);
  EXPECT_FALSE(glm.rotary_interleaved || glm.qk_layernorm || glm.add_qkv_bias);
  EXPECT_EQ(glm.norm_epsilon, 1e-5);
  EXPECT_EQ(expert_layers(glm), (Layers{0, 1, 1, 1}));
  EXPECT_EQ(glm.moe.num_experts, 128);
  EXPECT_EQ(glm.moe.router_topk, 8);
  EXPECT_EQ(glm.moe.shared_expert_intermediate_size, 1408);
  EXPECT_EQ(glm.moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(glm.moe.router_enable_expert_bias);
  EXPECT_FALSE(glm.moe.router_num_groups.has_value());
  EXPECT_TRUE(model_of(config("glm4_moe", {{"use_qk_norm", true}})).qk_layernorm);

  const TransformerConfig solar = model_of(config("solar_open"));
  EXPECT_EQ(solar.kv_channels, 128);
  EXPECT_EQ(solar.rotary_base, 1e6);
  EXPECT_EQ(solar.moe.ffn_hidden_size, 1280);
  EXPECT_TRUE(expert_layers(solar).empty());
  Json without_width = config("solar_open");
  without_width.erase("intermediate_size");
  EXPECT_TRUE(forward_differences(solar, model_of(without_width)).empty());

  const Json routed = {
      {"n_routed_experts", 8}, {"num_experts_per_tok", 4}, {"norm_topk_prob", true}};
  const TransformerConfig dots = model_of(config("dots1", routed));
  EXPECT_TRUE(dots.qk_layernorm);
  EXPECT_TRUE(expert_layers(dots).empty());
  EXPECT_FALSE(dots.window_size.has_value()) << "62 layers have none";
  Json windows = routed;
  windows["max_window_layers"] = 3;
  EXPECT_EQ(windowed_layers(model_of(config("dots1", windows))), (Layers{0, 0, 0, 1}));

  for (const char* type : {"glm4_moe", "solar_open", "dots1"}) {
    expect_round_trip(config(type, routed));
    Json groups = routed;
    groups.merge_patch({{"n_group", 4},
                        {"topk_group", 2},
                        {"routed_scaling_factor", 1.5},
                        {"n_shared_experts", 2},
                        {"tie_word_embeddings", true}});
    EXPECT_EQ(model_of(config(type, groups)).moe.router_group_score_topk, 2);
    expect_round_trip(config(type, groups));
    expect_refusals(type, routed,
                    {{{{"norm_topk_prob", false}}, "norm_topk_prob"},
                     {{{"num_experts_per_tok", 1}}, "num_experts_per_tok"},
                     {{{"n_group", 3}, {"topk_group", 2}}, "n_group"}});
  }
  expect_round_trip(config("glm4_moe", {{"use_qk_norm", true}, {"attention_bias", true}}));
  expect_refusals("solar_open", routed,
                  {{{{"first_k_dense_replace", 1}}, "first_k_dense_replace"},
                   {{{"partial_rotary_factor", 0.5}}, "partial_rotary_factor"}});
  expect_refusals(
      "dots1", {{"n_routed_experts", 8}, {"num_experts_per_tok", 4}},
      {{Json::object(), "norm_topk_prob"}, {{{"attention_bias", true}}, "attention_bias"}});
}

TEST(HfConfigGlm, ReadsMiniMax) {
  const TransformerConfig model = model_of(config("minimax_m2"));
  EXPECT_EQ(model.kv_channels, 128);
  EXPECT_EQ(model.rotary_percent, 1);
  EXPECT_EQ(model.rotary_base, 5e6);
  EXPECT_TRUE(model.qk_layernorm && model.qk_layernorm_scope == QkNormScope::all_heads);
  EXPECT_EQ(model.moe.num_experts, 256);
  EXPECT_EQ(model.moe.ffn_hidden_size, 112);
  EXPECT_EQ(model.moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(model.moe.router_enable_expert_bias);
  // As published folders say which part is rotated.
  EXPECT_EQ(model_of(config("minimax_m2", {{"rotary_dim", 64}})).rotary_percent, 0.5);
  expect_round_trip(config("minimax_m2", {{"rotary_dim", 64}, {"num_experts", 8}}));
  expect_round_trip(config("minimax_m2", {{"head_dim", 24}, {"partial_rotary_factor", 0.5}}));
  expect_refusals("minimax_m2", {{"head_dim", 16}},
                  {{{{"rotary_dim", 8}, {"partial_rotary_factor", 0.25}}, "rotary_dim"},
                   {{{"rotary_dim", 32}}, "rotary_dim"},
                   {{{"num_experts_per_tok", 1}}, "num_experts_per_tok"}});
}

TEST(HfConfigGlm, ReadsErnie) {
  const TransformerConfig dense = model_of(config("ernie4_5"));
  EXPECT_EQ(dense.kv_channels, 128);
  EXPECT_EQ(dense.rotary_base, 500000);
  EXPECT_EQ(dense.norm_epsilon, 1e-5);
  EXPECT_TRUE(dense.rotary_interleaved);
  EXPECT_FALSE(dense.add_bias_linear || dense.untie_embeddings_and_output_weights);
  EXPECT_TRUE(model_of(config("ernie4_5", {{"use_bias", true}})).add_bias_linear);
  Json without_size = config("ernie4_5");
  without_size["head_dim"] = nullptr;
  EXPECT_EQ(model_of(without_size).kv_channels, 16);
  expect_round_trip(config("ernie4_5", {{"use_bias", true}, {"tie_word_embeddings", false}}));

  const TransformerConfig moe = model_of(config("ernie4_5_moe"));
  EXPECT_EQ(moe.kv_channels, 16);
  EXPECT_EQ(moe.moe.num_experts, 64);
  EXPECT_EQ(moe.moe.router_topk, 6);
  EXPECT_EQ(moe.moe.ffn_hidden_size, 1536);
  EXPECT_EQ(moe.moe.shared_expert_intermediate_size, 2 * 1536);
  EXPECT_EQ(moe.moe.router_score_function, RouterScore::softmax);
  EXPECT_TRUE(moe.moe.router_enable_expert_bias && !moe.moe.router_pre_softmax);
  EXPECT_EQ(expert_layers(moe), (Layers{0, 1, 1, 1}));
  const Json every_second = {{"moe_layer_interval", 2}, {"moe_layer_start_index", 0}};
  EXPECT_EQ(expert_layers(model_of(config("ernie4_5_moe", every_second))), (Layers{0, 1, 0, 1}));
  expect_round_trip(config("ernie4_5_moe", every_second));
  expect_round_trip(config("ernie4_5_moe", {{"moe_layer_start_index", 0},
                                            {"moe_layer_end_index", 2},
                                            {"moe_num_shared_experts", 0},
                                            {"num_experts", 8},
                                            {"num_experts_per_tok", 2}}));
  expect_refusals("ernie4_5_moe", Json::object(),
                  {{{{"use_bias", true}}, "use_bias"},
                   {{{"moe_norm_min", 0.5}}, "moe_norm_min"},
                   {{{"moe_layer_start_index", 4}}, "moe_layer_start_index"},
                   {{{"moe_layer_interval", 0}}, "moe_layer_interval"},
                   {{{"moe_num_shared_experts", -1}}, "moe_num_shared_experts"}});
}

TEST(HfConfigGlm, ReadsMinistral) {
  const TransformerConfig all = model_of(config("ministral"));
  EXPECT_EQ(*all.window_size, (std::array<std::int64_t, 2>{4095, 0}));
  EXPECT_TRUE(windowed_layers(all).empty());
  Json none = config("ministral");
  none["sliding_window"] = nullptr;
  EXPECT_FALSE(model_of(none).window_size.has_value());
  const Json some =
      config("ministral",
             {{"sliding_window", 7},
              {"head_dim", 24},
              {"layer_types",
               {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}}});
  EXPECT_EQ(windowed_layers(model_of(some)), (Layers{1, 0, 0, 1}));
  for (const Json& json : {config("ministral"), none, some}) expect_round_trip(json);

  const Json yarn = {{"type", "yarn"},
                     {"rope_theta", 1e6},
                     {"factor", 16.0},
                     {"original_max_position_embeddings", 16},
                     {"mscale", 1.0},
                     {"mscale_all_dim", 1.0},
                     {"llama_4_scaling_beta", 0.1}};
  const HfConfig third = parse_hf_config(config("ministral3", {{"rope_parameters", yarn}}), "c");
  EXPECT_TRUE(third.notes.empty());
  EXPECT_EQ(third.model.attn_temperature_scale, 0.1);
  EXPECT_EQ(third.model.attn_temperature_floor, 16);
  EXPECT_TRUE(third.model.attn_temperature_all_layers);
  EXPECT_EQ(third.model.rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(third.model.kv_channels, 128);
  EXPECT_FALSE(third.model.window_size.has_value());
  const Json plain = {{"rope_type", "default"},
                      {"original_max_position_embeddings", 5},
                      {"llama_4_scaling_beta", 0.5}};
  EXPECT_EQ(model_of(config("ministral3", {{"rope_parameters", plain}})).attn_temperature_floor, 5);
  expect_round_trip(config("ministral3", {{"rope_parameters", yarn}, {"sliding_window", 7}}));
  expect_round_trip(config("ministral3", {{"rope_scaling", yarn}, {"head_dim", 16}}));
  expect_round_trip(config("ministral3", {{"rope_parameters", plain}}));
  expect_refusals(
      "ministral3", Json::object(),
      {{Json::object(), "llama_4_scaling_beta"},
       {{{"rope_parameters", {{"llama_4_scaling_beta", -1}}}}, "llama_4_scaling_beta"},
       {{{"rope_parameters", {{"llama_4_scaling_beta", 0.1}}}}, "original_max_position_embeddings"},
       {{{"rope_parameters", plain}, {"layer_types", {"full_attention"}}}, "layer_types"}});
}

TEST(HfConfigGlm, ReadsFlexOlmo) {
  const TransformerConfig model = model_of(config("flex_olmo"));
  EXPECT_EQ(model.norm_placement, NormPlacement::output);
  EXPECT_EQ(model.rotary_base, 500000);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.moe.num_experts, 7);
  EXPECT_EQ(model.moe.router_topk, 5);
  EXPECT_EQ(model.moe.ffn_hidden_size, 112);
  EXPECT_TRUE(model.moe.router_pre_softmax && model.qk_layernorm);
  expect_round_trip(config("flex_olmo", {{"norm_topk_prob", true}}));
  expect_refusals("flex_olmo", Json::object(), {{{{"attention_bias", true}}, "attention_bias"}});
}

TEST(HfConfigGlm, ReadsHunyuan) {
  const Json eight = {{"num_experts", 8}, {"moe_topk", {2, 2, 2, 2}}, {"head_dim", 24}};
  const TransformerConfig model = model_of(config("hunyuan_v1_moe", eight));
  EXPECT_EQ(model.qk_layernorm_placement, QkNormPlacement::after_rotary);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.moe.num_experts, 8);
  EXPECT_EQ(model.moe.router_topk, 2);
  EXPECT_EQ(model.moe.ffn_hidden_size, 112);
  EXPECT_EQ(model.moe.shared_expert_intermediate_size, 112);
  EXPECT_FALSE(model.moe.router_pre_softmax);
  expect_round_trip(config("hunyuan_v1_moe", eight));
  expect_round_trip(config("hunyuan_v1_moe", {{"num_experts", 8}, {"num_experts_per_tok", 3}}));
  expect_refusals("hunyuan_v1_moe", eight,
                  {{{{"moe_topk", {2, 2, 1, 2}}}, "moe_topk"},
                   {{{"moe_topk", {2, 2, 2}}}, "moe_topk"},
                   {{{"moe_topk", {9, 9, 9, 9}}}, "moe_topk"},
                   {{{"moe_topk", 9}}, "moe_topk"},
                   {{{"num_experts", {8, 8, 8, 8}}}, "num_experts"},
                   {{{"attention_bias", true}}, "attention_bias"}});
}

TEST(HfConfigGlm, ATemperatureOfAllLayersIsNotWrittenElsewhere) {
  const Json rope = {{"original_max_position_embeddings", 5}, {"llama_4_scaling_beta", 0.5}};
  const TransformerConfig model = model_of(config("ministral3", {{"rope_parameters", rope}}));
  expect_user_error([&] { make_hf_config(model, "mistral", "float32", nullptr); },
                    {"mistral", "--attn-temperature-scale", "--attn-temperature-all-layers"});
}

}  // namespace
}  // namespace megatron
