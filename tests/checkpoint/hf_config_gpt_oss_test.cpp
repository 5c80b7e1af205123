// The expected values are the defaults of GptOssConfig in transformers 5, and those of the
// published gpt-oss-20b.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {
namespace {

Json gpt_oss(const Json& changes = Json::object()) {
  Json json = {
      {"model_type", "gpt_oss"}, {"vocab_size", 201088},   {"hidden_size", 2880},
      {"intermediate_size", 48}, {"num_hidden_layers", 4}, {"num_attention_heads", 64},
      {"hidden_act", "silu"},    {"swiglu_limit", 7.0},    {"max_position_embeddings", 131072}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

TEST(HfGptOssConfig, ReadsGptOss) {
  const TransformerConfig model = model_of(gpt_oss());
  EXPECT_EQ(model.query_groups(), 8);
  EXPECT_EQ(model.kv_channels, 64);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.softmax_type, SoftmaxType::learnable);
  EXPECT_EQ(model.activation, Activation::quick_gelu);
  EXPECT_EQ(model.activation_func_clamp_value, 7);
  EXPECT_EQ(model.glu_linear_offset, 1);
  EXPECT_TRUE(model.add_bias_linear && model.gated_linear_unit);
  EXPECT_TRUE(model.untie_embeddings_and_output_weights);
  EXPECT_EQ(model.moe.num_experts, 128);
  EXPECT_EQ(model.moe.router_topk, 4);
  EXPECT_EQ(model.moe.ffn_hidden_size, 48);
  EXPECT_FALSE(model.moe.router_pre_softmax);
  EXPECT_EQ(model.window_size->at(0), 127);
  EXPECT_EQ(windowed_layers(model), (std::vector<std::int64_t>{1, 0, 1, 0}));
  EXPECT_EQ(model.rotary_base, 150000);
  EXPECT_EQ(model.rope_scaling_type, RopeScaling::yarn);
  EXPECT_EQ(model.rope_scaling_factor, 32);
  EXPECT_EQ(model.rope_original_max_position_embeddings, 4096);
  EXPECT_FALSE(model.yarn_correction_range_round_to_int);
}

TEST(HfGptOssConfig, ReadsThePublishedGptOss) {
  const Json published =
      gpt_oss({{"num_local_experts", 32},
               {"experts_per_token", 4},
               {"num_experts_per_tok", 4},
               {"attention_bias", true},
               {"initial_context_length", 4096},
               {"rope_theta", 150000},
               {"rope_scaling",
                {{"beta_fast", 32.0},
                 {"beta_slow", 1.0},
                 {"factor", 32.0},
                 {"original_max_position_embeddings", 4096},
                 {"rope_type", "yarn"},
                 {"truncate", false}}},
               {"sliding_window", 128},
               {"layer_types",
                {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}}});
  EXPECT_TRUE(
      forward_differences(model_of(published), model_of(gpt_oss({{"num_local_experts", 32}})))
          .empty());
  EXPECT_EQ(model_of(gpt_oss({{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5}}}}))
                .rope_scaling_type,
            RopeScaling::none);
}

TEST(HfGptOssConfig, DropsTheQuantization) {
  const Json packed = gpt_oss({{"quantization_config", {{"quant_method", "mxfp4"}}}});
  const Json json = make_hf_config(model_of(packed), "gpt_oss", "bfloat16", &packed);
  EXPECT_FALSE(json.contains("quantization_config"));
  EXPECT_EQ(json.at("swiglu_limit"), 7.0);
}

TEST(HfGptOssConfig, WritesGptOss) {
  const TransformerConfig model = model_of(gpt_oss({{"sliding_window", 7}}));
  const Json json = make_hf_config(model, "gpt_oss", "float32", nullptr);
  EXPECT_TRUE(forward_differences(model, model_of(json)).empty()) << json;
  EXPECT_EQ(json.at("hidden_act"), "silu");
  EXPECT_EQ(json.at("rope_scaling").at("truncate"), false);
}

TEST(HfGptOssConfig, RefusesWhatGptOssLacks) {
  expect_user_error([] { model_of(gpt_oss({{"attention_bias", false}})); }, {"attention_bias"});
  expect_user_error([] { model_of(gpt_oss({{"swiglu_limit", 5.0}})); }, {"swiglu_limit", "7.0"});
}

}  // namespace
}  // namespace megatron
