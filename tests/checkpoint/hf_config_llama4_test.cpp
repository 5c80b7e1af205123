// The expected values are the defaults of Llama4TextConfig in transformers 5.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/models/hf/hf_config.h"

namespace megatron {
namespace {

using Layers = std::vector<std::int64_t>;

Json llama4(const Json& changes = Json::object()) {
  Json json = {
      {"model_type", "llama4_text"},      {"vocab_size", 202048},   {"hidden_size", 5120},
      {"intermediate_size", 8192},        {"num_hidden_layers", 5}, {"num_attention_heads", 40},
      {"max_position_embeddings", 131072}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

TEST(HfLlama4Config, ReadsLlama4) {
  const TransformerConfig model = model_of(llama4());
  EXPECT_EQ(model.query_groups(), 8);
  EXPECT_EQ(model.kv_channels, 128);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.rotary_base, 500000);
  EXPECT_TRUE(model.rotary_interleaved && model.qk_l2_norm);
  EXPECT_EQ(model.ffn_hidden_size, 16384);
  EXPECT_EQ(model.moe.num_experts, 16);
  EXPECT_EQ(model.moe.router_topk, 1);
  EXPECT_EQ(model.moe.ffn_hidden_size, 8192);
  EXPECT_EQ(model.moe.shared_expert_intermediate_size, 8192);
  EXPECT_EQ(model.moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(model.moe.apply_probs_on_input);
  EXPECT_EQ(model.attention_chunk_size, 8192);
  EXPECT_EQ(windowed_layers(model), (Layers{1, 1, 1, 0, 1}));
  EXPECT_EQ(nope_layers(model), (Layers{0, 0, 0, 1, 0}));
  EXPECT_EQ(model.kind(3).rotary, RotaryKind::none);
  EXPECT_EQ(model.kind(4).chunk, 8192);
  EXPECT_EQ(model.attn_temperature_scale, 0.1);
  EXPECT_EQ(model.attn_temperature_floor, 8192);
  EXPECT_TRUE(model.kind(0).has_experts());
}

TEST(HfLlama4Config, ReadsTheLayersOfLlama4) {
  const TransformerConfig model =
      model_of(llama4({{"interleave_moe_layer_step", 2},
                       {"no_rope_layers", Json::array()},
                       {"no_rope_layer_interval", 2},
                       {"attn_temperature_tuning", 4},
                       {"layer_types",
                        {"full_attention", "chunked_attention", "full_attention",
                         "chunked_attention", "full_attention"}}}));
  EXPECT_EQ(expert_layers(model), (Layers{0, 1, 0, 1, 0}));
  EXPECT_EQ(nope_layers(model), (Layers{0, 1, 0, 1, 0}));
  EXPECT_EQ(windowed_layers(model), (Layers{0, 1, 0, 1, 0}));
  EXPECT_EQ(model.attn_temperature_scale, 0.1);
  const TransformerConfig listed = model_of(llama4({{"moe_layers", {0, 4}},
                                                    {"no_rope_layers", {0, 1, 1, 1, 1, 0}},
                                                    {"attn_temperature_tuning", false}}));
  EXPECT_EQ(expert_layers(listed), (Layers{1, 0, 0, 0, 1}));
  EXPECT_EQ(nope_layers(listed), (Layers{1, 0, 0, 0, 0}));
  EXPECT_EQ(windowed_layers(listed), (Layers{0, 1, 1, 1, 1}));
  EXPECT_EQ(listed.attn_temperature_scale, 0);
}

// As Llama 4 Scout has it: no band lies between the factors.
TEST(HfLlama4Config, FactorsOfFrequenciesMayBeEqual) {
  const TransformerConfig model = model_of(llama4({{"rope_theta", 500000.0},
                                                   {"rope_scaling",
                                                    {{"factor", 16.0},
                                                     {"high_freq_factor", 1.0},
                                                     {"low_freq_factor", 1.0},
                                                     {"original_max_position_embeddings", 8192},
                                                     {"rope_type", "llama3"}}}}));
  EXPECT_EQ(model.rope_scaling_type, RopeScaling::llama3);
  EXPECT_EQ(model.rope_high_freq_factor, model.rope_low_freq_factor);
}

TEST(HfLlama4Config, WritesLlama4) {
  for (const Json& changes :
       {Json::object(), Json{{"moe_layers", {1}}, {"use_qk_norm", false}, {"attn_scale", 0.5}},
        Json{{"no_rope_layer_interval", 9}}, Json{{"attn_temperature_tuning", false}}}) {
    const TransformerConfig model = model_of(llama4(changes));
    const Json json = make_hf_config(model, "llama4_text", "float32", nullptr);
    EXPECT_TRUE(forward_differences(model, model_of(json)).empty()) << json;
  }
}

TEST(HfLlama4Config, RefusesWhatLlama4Lacks) {
  const std::pair<Json, const char*> cases[] = {
      {{{"num_experts_per_tok", 2}}, "num_experts_per_tok"},
      {{{"attention_bias", true}}, "attention_bias"},
      {{{"moe_layers", Json::array()}}, "moe_layers"},
      {{{"no_rope_layers", {1, 1}}}, "no_rope_layers"},
      {{{"layer_types", {"chunked_attention"}}}, "layer_types"},
      {{{"interleave_moe_layer_step", 6}}, "interleave_moe_layer_step"}};
  for (const auto& [changes, key] : cases)
    expect_user_error([&] { model_of(llama4(changes)); }, {key});
  Json without_chunks = llama4();
  without_chunks["attention_chunk_size"] = nullptr;
  expect_user_error([&] { model_of(without_chunks); }, {"attention_chunk_size"});
}

}  // namespace
}  // namespace megatron
