// Families with recurrent layers. The expected values are the defaults of the configuration classes
// of transformers 5 and those of published models; tests/parity/hybrid_parity.py compares models.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/base/json.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

using Names = std::vector<std::string>;

Json merged(Json json, const Json& changes) {
  json.merge_patch(changes);
  return json;
}

Json mamba2(const Json& changes = Json::object()) {
  return merged({{"model_type", "mamba2"},
                 {"vocab_size", 128},
                 {"hidden_size", 2560},
                 {"num_hidden_layers", 4},
                 {"num_heads", 80}},
                changes);
}

Json nemotron_h(const Json& changes = Json::object()) {
  return merged({{"model_type", "nemotron_h"},
                 {"vocab_size", 128},
                 {"hidden_size", 64},
                 {"num_attention_heads", 8},
                 {"hybrid_override_pattern", "M-M*-ME"}},
                changes);
}

Json bamba(const Json& changes = Json::object()) {
  return merged({{"model_type", "bamba"},
                 {"vocab_size", 128},
                 {"hidden_size", 64},
                 {"intermediate_size", 112},
                 {"num_hidden_layers", 3},
                 {"num_attention_heads", 8},
                 {"mamba_n_heads", 4},
                 {"max_position_embeddings", 256},
                 {"attn_layer_indices", {1}}},
                changes);
}

Json granite(const Json& changes = Json::object()) {
  return merged({{"model_type", "granitemoehybrid"},
                 {"vocab_size", 128},
                 {"hidden_size", 64},
                 {"intermediate_size", 48},
                 {"shared_intermediate_size", 112},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"mamba_n_heads", 4},
                 {"max_position_embeddings", 256},
                 {"layer_types", {"mamba", "attention"}}},
                changes);
}

Json qwen3_next(const Json& changes = Json::object()) {
  return merged({{"model_type", "qwen3_next"},
                 {"vocab_size", 128},
                 {"hidden_size", 64},
                 {"intermediate_size", 112},
                 {"num_hidden_layers", 8},
                 {"num_attention_heads", 16},
                 {"max_position_embeddings", 256}},
                changes);
}

/// The text model of Qwen3.5, whose experts a `type` with "moe" has.
Json qwen3_5(const std::string& type, const Json& changes = Json::object()) {
  Json json = qwen3_next({{"model_type", type}});
  if (type == "qwen3_5_moe_text") json.erase("intermediate_size");
  return merged(json, changes);
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

TEST(HfHybridConfig, ReadsMamba2) {
  const TransformerConfig model = model_of(mamba2());
  EXPECT_EQ(model.hybrid_layer_pattern, "MMMM");
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.position_embedding_type, PositionEmbedding::none);
  EXPECT_EQ(model.norm_epsilon, 1e-5);
  EXPECT_EQ(model.mamba.state_dim, 128);
  EXPECT_EQ(model.mamba.head_dim, 64);
  EXPECT_EQ(model.mamba.num_groups, 8);
  EXPECT_EQ(model.mamba.norm_groups, 1) << "the gated norm covers all channels";
  EXPECT_EQ(model.mamba.norm_epsilon, 1e-5);
  EXPECT_TRUE(model.untie_embeddings_and_output_weights);
  expect_user_error([] { model_of(mamba2({{"num_heads", 64}})); }, {"num_heads", "expand"});
  for (const char* key : {"use_bias", "use_conv_bias"})
    expect_user_error([&] { model_of(mamba2({{key, key == std::string("use_bias")}})); }, {key});
}

TEST(HfHybridConfig, ReadsTheLimitOfTimeStepsThatIsNone) {
  const std::string text = mamba2().dump();
  for (const char* limit : {"[0.0, Infinity]", R"([0.0, {"__float__": "Infinity"}])", "null"}) {
    const std::string whole =
        text.substr(0, text.size() - 1) + R"(, "time_step_limit": )" + limit + "}";
    EXPECT_EQ(model_of(parse_python_json(whole, "config.json")).num_layers, 4) << limit;
  }
  expect_user_error(
      [] {
        model_of(mamba2({{"time_step_limit", {0.001, 0.1}}}));
      },
      {"time_step_limit", "Infinity"});
}

TEST(HfHybridConfig, ReadsNemotronH) {
  const TransformerConfig model = model_of(nemotron_h());
  EXPECT_EQ(model.hybrid_layer_pattern, "M-M*-ME");
  EXPECT_EQ(model.kv_channels, 128);
  EXPECT_EQ(model.query_groups(), 8);
  EXPECT_EQ(model.ffn_hidden_size, 21504);
  EXPECT_EQ(model.activation, Activation::squared_relu);
  EXPECT_FALSE(model.gated_linear_unit || model.add_bias_linear);
  EXPECT_EQ(model.mamba.num_heads, 128);
  EXPECT_EQ(model.mamba.norm_groups, 0) << "each group of heads on its own";
  EXPECT_EQ(model.moe.num_experts, 8);
  EXPECT_EQ(model.moe.router_score_function, RouterScore::sigmoid);
  EXPECT_TRUE(model.moe.router_enable_expert_bias);
  EXPECT_EQ(model.moe.shared_expert_intermediate_size, 7688);
  const Json by_name = nemotron_h({{"hybrid_override_pattern", nullptr},
                                   {"layers_block_type", {"mamba", "attention", "mlp", "moe"}}});
  EXPECT_EQ(model_of(by_name).hybrid_layer_pattern, "M*-E");
  EXPECT_EQ(model_of(nemotron_h({{"hybrid_override_pattern", "M-"}})).moe.num_experts, 0);
  expect_user_error(
      [] {
        model_of(nemotron_h({{"hybrid_override_pattern", "M-D"}}));
      },
      {"hybrid_override_pattern", "M-D"});
}

TEST(HfHybridConfig, ReadsBambaAsLayersOfOneBlock) {
  const TransformerConfig model = model_of(bamba());
  EXPECT_EQ(model.hybrid_layer_pattern, "M-*-M-");
  EXPECT_EQ(model.rotary_percent, 0.5);
  EXPECT_EQ(model.mamba.head_dim, 32) << "2 x 64 channels in 4 heads";
  EXPECT_EQ(model.mamba.state_dim, 256);
  EXPECT_EQ(model.mamba.num_groups, 1);
  EXPECT_EQ(model.query_groups(), 8);
  expect_user_error([] { model_of(bamba({{"attn_layer_indices", {3}}})); }, {"attn_layer_indices"});
}

TEST(HfHybridConfig, ReadsGranite) {
  const TransformerConfig model =
      model_of(granite({{"num_local_experts", 62}, {"num_experts_per_tok", 6}}));
  EXPECT_EQ(model.hybrid_layer_pattern, "ME*E");
  EXPECT_EQ(model.moe.num_experts, 62);
  EXPECT_EQ(model.moe.ffn_hidden_size, 48);
  EXPECT_EQ(model.moe.shared_expert_intermediate_size, 112);
  EXPECT_FALSE(model.moe.shared_expert_gate);
  EXPECT_EQ(model.position_embedding_type, PositionEmbedding::none);
  const TransformerConfig dense =
      model_of(granite({{"num_local_experts", 0}, {"position_embedding_type", "rope"}}));
  EXPECT_EQ(dense.hybrid_layer_pattern, "M-*-");
  EXPECT_EQ(dense.ffn_hidden_size, 112);
  EXPECT_EQ(dense.position_embedding_type, PositionEmbedding::rope);
}

TEST(HfHybridConfig, ReadsQwen3Next) {
  const TransformerConfig model = model_of(qwen3_next());
  EXPECT_EQ(linear_attention_layers(model), (std::vector<std::int64_t>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(model.kind(0).mixer, MixerKind::gated_delta_net);
  EXPECT_EQ(model.kind(3).mixer, MixerKind::attention);
  EXPECT_EQ(model.linear_attention.num_key_heads, 16);
  EXPECT_EQ(model.linear_attention.num_value_heads, 32);
  EXPECT_FALSE(model.linear_attention.norm_1p) << "the gated norm is not centred at zero";
  EXPECT_TRUE(model.apply_layernorm_1p && model.attention_output_gate && model.qk_layernorm);
  EXPECT_EQ(model.rotary_percent, 0.25);
  EXPECT_EQ(model.kv_channels, 256);
  EXPECT_EQ(model.moe.num_experts, 512);
  EXPECT_EQ(model.moe.router_topk, 10);
  EXPECT_TRUE(model.moe.shared_expert_gate);
  EXPECT_FALSE(model.moe.router_pre_softmax);
  const TransformerConfig other = model_of(qwen3_next({{"full_attention_interval", 2}}));
  EXPECT_EQ(other.kind(1).mixer, MixerKind::attention);
}

TEST(HfHybridConfig, ReadsQwen35) {
  const TransformerConfig model = model_of(qwen3_5("qwen3_5_text"));
  EXPECT_EQ(linear_attention_layers(model), (std::vector<std::int64_t>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(model.query_groups(), 4);
  EXPECT_EQ(model.kv_channels, 256);
  EXPECT_EQ(model.rotary_percent, 0.25);
  EXPECT_EQ(model.ffn_hidden_size, 112);
  EXPECT_EQ(model.moe.num_experts, 0);
  EXPECT_TRUE(model.apply_layernorm_1p && model.attention_output_gate && model.qk_layernorm);
  EXPECT_FALSE(model.linear_attention.norm_1p);
  const TransformerConfig experts = model_of(qwen3_5("qwen3_5_moe_text"));
  EXPECT_EQ(experts.query_groups(), 2);
  EXPECT_EQ(experts.moe.num_experts, 256);
  EXPECT_EQ(experts.moe.router_topk, 8);
  EXPECT_EQ(experts.moe.ffn_hidden_size, 512);
  EXPECT_EQ(experts.moe.shared_expert_intermediate_size, 512);
  EXPECT_TRUE(experts.moe.shared_expert_gate);
  EXPECT_FALSE(experts.moe.router_pre_softmax);
}

// As published: the sections of positions are those of images.
TEST(HfHybridConfig, Qwen35RotatesTextsAsUsual) {
  const Json rope{{"mrope_interleaved", true},
                  {"mrope_section", {11, 11, 10}},
                  {"rope_type", "default"},
                  {"rope_theta", 1e7},
                  {"partial_rotary_factor", 0.5}};
  const HfConfig config =
      parse_hf_config(qwen3_5("qwen3_5_text", {{"rope_parameters", rope}}), "config.json");
  ASSERT_EQ(config.notes.size(), 1u);
  EXPECT_NE(config.notes[0].find("ignored: mrope_interleaved, mrope_section"), std::string::npos);
  EXPECT_EQ(config.model.rotary_base, 1e7);
  EXPECT_EQ(config.model.rotary_percent, 0.5);
}

TEST(HfHybridConfig, RefusesImagesButNamesTheTextModel) {
  for (const std::string type : {"qwen3_5", "qwen3_5_moe"}) {
    const Json text{{"model_type", type + "_text"}};
    expect_user_error(
        [&] {
          model_of(
              {{"model_type", type}, {"text_config", text}, {"vision_config", Json::object()}});
        },
        {"'" + type + "'", "needs vision", "of model_type '" + type + "_text'"});
    expect_user_error([&] { model_of({{"model_type", type}}); }, {"needs vision"});
  }
}

TEST(HfHybridConfig, WritesWhatItReads) {
  const Json configs[] = {mamba2(),
                          mamba2({{"n_groups", 1}, {"conv_kernel", 3}}),
                          nemotron_h(),
                          nemotron_h({{"hybrid_override_pattern", "M*M"}, {"n_groups", 2}}),
                          nemotron_h({{"moe_latent_size", 32}, {"n_group", 4}, {"topk_group", 2}}),
                          bamba(),
                          bamba({{"attn_layer_indices", nullptr}, {"mamba_n_groups", 2}}),
                          granite(),
                          granite({{"num_local_experts", 0}, {"position_embedding_type", "rope"}}),
                          qwen3_next(),
                          qwen3_next({{"layer_types", Json(8, "linear_attention")},
                                      {"mlp_only_layers", {1}},
                                      {"linear_num_value_heads", 16}}),
                          qwen3_5("qwen3_5_text", {{"full_attention_interval", 2}}),
                          qwen3_5("qwen3_5_moe_text", {{"moe_intermediate_size", 48}})};
  for (const Json& config : configs) {
    const std::string type = config.at("model_type");
    const TransformerConfig model = model_of(config);
    const Json json = make_hf_config(model, type, "float32", nullptr);
    EXPECT_TRUE(forward_differences(model, model_of(json)).empty()) << json;
  }
  EXPECT_EQ(make_hf_config(model_of(bamba()), "bamba", "float32", nullptr).at("num_hidden_layers"),
            3);
}

TEST(HfHybridConfig, SayWhatAFamilyCannotExpress) {
  TransformerConfig model = model_of(nemotron_h());
  model.mamba.norm_groups = 1;
  expect_user_error([&] { make_hf_config(model, "nemotron_h", "float32", nullptr); },
                    {"--mamba-norm-groups"});
  model = model_of(bamba());
  model.hybrid_layer_pattern = "MM-";
  expect_user_error([&] { make_hf_config(model, "bamba", "float32", nullptr); },
                    {"--hybrid-layer-pattern"});
  model = model_of(qwen3_next({{"mlp_only_layers", {1}}}));
  expect_user_error([&] { make_hf_config(model, "qwen3_5_moe_text", "float32", nullptr); },
                    {"--moe-layer-freq"});
}

TEST(HfHybridConfig, RefusesMoreTapsThanTheConvolutionHas) {
  expect_user_error([&] { model_of(mamba2({{"conv_kernel", 9}})); }, {"conv_kernel"});
  expect_user_error(
      [&] {
        model_of(qwen3_next({{"linear_conv_kernel_dim", 9}}));
      },
      {"linear_conv_kernel_dim"});
}

TEST(HfHybridConfig, RefusesOtherFamiliesByTheMissingFeature) {
  for (const auto& [type, feature] :
       {std::pair{"falcon_h1", "parallel attention and Mamba in one layer"},
        std::pair{"zamba2", "shared attention blocks"},

        std::pair{"kimi_linear", "a decay per channel (KDA)"},
        std::pair{"qwen4_exp_text", "hyper-connections"}, std::pair{"jamba", "Mamba-1"}})
    expect_user_error([&] { model_of({{"model_type", type}}); }, {type, feature});
}

Names names_of(const std::vector<HfTensor>& tensors) {
  Names names;
  for (const HfTensor& tensor : tensors) names.push_back(tensor.name);
  return names;
}

TEST(HfHybridWeights, ALayerOfBambaIsTwoOfOurs) {
  const Names names{"decoder.layers.4.mixer.in_proj.layer_norm_weight",
                    "decoder.layers.4.mixer.conv1d.bias", "decoder.layers.5.mlp.linear_fc1.weight",
                    "decoder.layers.6.self_attention.linear_proj.weight",
                    "decoder.final_norm.weight"};
  const auto links = map_weights(*find_hf_family("bamba"), names, 0);
  EXPECT_EQ(names_of(links[0].theirs), Names{"model.layers.2.input_layernorm.weight"});
  EXPECT_EQ(names_of(links[1].theirs), Names{"model.layers.2.mamba.conv1d.bias"});
  EXPECT_EQ(names_of(links[2].theirs), (Names{"model.layers.2.feed_forward.gate_proj.weight",
                                              "model.layers.2.feed_forward.up_proj.weight"}));
  EXPECT_EQ(names_of(links[3].theirs), Names{"model.layers.3.self_attn.o_proj.weight"});
  EXPECT_EQ(names_of(links[4].theirs), Names{"model.final_layernorm.weight"});
  const Names odd{"decoder.layers.5.mixer.in_proj.weight"};
  expect_user_error([&] { map_weights(*find_hf_family("bamba"), odd, 0); }, {odd[0]});
}

TEST(HfHybridWeights, ALayerOfNemotronIsOneOfOurs) {
  const Names names{"decoder.layers.3.mixer.in_proj.layer_norm_weight",
                    "decoder.layers.4.mlp.experts.linear_fc1.weight",
                    "decoder.layers.5.self_attention.linear_qkv.layer_norm_weight"};
  const auto links = map_weights(*find_hf_family("nemotron_h"), names, 2);
  EXPECT_EQ(names_of(links[0].theirs), Names{"backbone.layers.3.norm.weight"});
  EXPECT_EQ(names_of(links[1].theirs), (Names{"backbone.layers.4.mixer.experts.0.up_proj.weight",
                                              "backbone.layers.4.mixer.experts.1.up_proj.weight"}));
  EXPECT_EQ(names_of(links[2].theirs), Names{"backbone.layers.5.norm.weight"});
  EXPECT_EQ(full_hf_name(*find_hf_family("nemotron_h"), "model.layers.5.norm.weight"),
            "backbone.layers.5.norm.weight");
}

TEST(HfHybridWeights, IgnoreWhatTransformersIgnores) {
  const HfFamily& family = *find_hf_family("qwen3_next");
  EXPECT_EQ(full_hf_name(family, "mtp.fc.weight"), "mtp.fc.weight");
  EXPECT_TRUE(is_hf_buffer(family, "mtp.fc.weight"));
  EXPECT_FALSE(is_hf_buffer(*find_hf_family("qwen3"), "mtp.fc.weight"));
}

/// Returns what each of their tensors has of a weight that counts its rows.
std::vector<at::Tensor> rows_of_theirs(const std::string& ours, const Sharding& sharding,
                                       const std::string& type = "qwen3_next") {
  TransformerConfig model;
  model.num_attention_heads = 4;
  model.linear_attention.num_key_heads = 2;
  const Names names{ours};
  const auto links = map_weights(*find_hf_family(type), names, 0, {.model = &model});
  std::vector<at::Tensor> rows;
  for (const HfTensor& theirs : links.front().theirs)
    rows.push_back(theirs.part.cut(at::arange(sharding.global_shape[0]), sharding));
  return rows;
}

// Our rows are those of all heads: 2 of q, 2 of k, 4 of v, 4 of z, 4 of beta, 4 of alpha.
TEST(HfHybridWeights, Qwen3NextHasTheRowsOfAHeadSideBySide) {
  const Sharding sharding = Sharding::split({20}, 0, {{2}, {2}, {4}, {4}, {4}, {4}});
  const auto rows = rows_of_theirs("decoder.layers.0.self_attention.in_proj.weight", sharding);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_TRUE(rows[0].equal(at::tensor({0, 2, 4, 5, 8, 9, 1, 3, 6, 7, 10, 11})));
  EXPECT_TRUE(rows[1].equal(at::tensor({12, 13, 16, 17, 14, 15, 18, 19})));
}

TEST(HfHybridWeights, Qwen35HasTheRowsOfAllHeadsOneAfterTheOther) {
  const Sharding sharding = Sharding::split({20}, 0, {{2}, {2}, {4}, {4}, {4}, {4}});
  const auto rows =
      rows_of_theirs("decoder.layers.0.self_attention.in_proj.weight", sharding, "qwen3_5_text");
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_TRUE(rows[0].equal(at::arange(8)));
  EXPECT_TRUE(rows[1].equal(at::arange(8, 12)));
  EXPECT_TRUE(rows[2].equal(at::arange(12, 16)));
  EXPECT_TRUE(rows[3].equal(at::arange(16, 20)));
}

// As transformers saves the text model of a model with images.
TEST(HfHybridWeights, Qwen35MayHaveTheNamesOfAModelWithImages) {
  for (const char* type : {"qwen3_5_text", "qwen3_5_moe_text"}) {
    const HfFamily& family = *find_hf_family(type);
    EXPECT_EQ(full_hf_name(family, "model.language_model.layers.0.input_layernorm.weight"),
              "model.layers.0.input_layernorm.weight");
    EXPECT_EQ(full_hf_name(family, "model.norm.weight"), "model.norm.weight");
    EXPECT_EQ(full_hf_name(family, "lm_head.weight"), "lm_head.weight");
    EXPECT_TRUE(is_hf_buffer(family, "mtp.fc.weight"));
  }
}

// Our rows of each of two groups: 2 queries, their gates, a key, a value.
TEST(HfHybridWeights, Qwen3NextHasAQueryBesideItsGate) {
  const Sharding sharding = Sharding::split({12}, 0, {{2}, {2}, {1}, {1}}, 2);
  const auto rows = rows_of_theirs("decoder.layers.3.self_attention.linear_qkv.weight", sharding);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_TRUE(rows[0].equal(at::tensor({0, 2, 1, 3, 6, 8, 7, 9})));
  EXPECT_TRUE(rows[1].equal(at::tensor({4, 10})));
  EXPECT_TRUE(rows[2].equal(at::tensor({5, 11})));
}

}  // namespace
}  // namespace megatron
