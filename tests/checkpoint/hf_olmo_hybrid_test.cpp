// OLMo Hybrid. The expected values are the defaults of OlmoHybridConfig of transformers 5.17 and
// the names of tensors that it writes; tests/parity/hybrid_parity.py compares models.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "checkpoint/expect_user_error.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/weight_map.h"

namespace megatron {
namespace {

using Names = std::vector<std::string>;

Json olmo_hybrid(const Json& changes = Json::object()) {
  Json json{{"model_type", "olmo_hybrid"},   {"vocab_size", 128},      {"hidden_size", 64},
            {"intermediate_size", 112},      {"num_hidden_layers", 8}, {"num_attention_heads", 4},
            {"max_position_embeddings", 256}};
  json.merge_patch(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

TEST(HfOlmoHybrid, ReadsItsDefaults) {
  const TransformerConfig model = model_of(olmo_hybrid());
  EXPECT_EQ(linear_attention_layers(model), (std::vector<std::int64_t>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(model.query_groups(), 4);
  EXPECT_EQ(model.norm_placement, NormPlacement::output_unless_recurrent);
  EXPECT_EQ(model.qk_layernorm_scope, QkNormScope::all_heads);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.linear_attention.norm_epsilon, 1e-5) << "whatever rms_norm_eps is";
  EXPECT_TRUE(model.linear_attention.allow_neg_eigval);
  EXPECT_EQ(model.linear_attention.num_key_heads, 4);
  EXPECT_EQ(model.linear_attention.num_value_heads, 4);
  EXPECT_EQ(model.linear_attention.key_head_dim, 12) << "0.75 x 64 / 4";
  EXPECT_EQ(model.linear_attention.value_head_dim, 24);
  EXPECT_EQ(model.position_embedding_type, PositionEmbedding::rope);
  EXPECT_EQ(model.rotary_base, 10000);
  EXPECT_EQ(linear_attention_layers(model_of(olmo_hybrid({{"num_hidden_layers", 2}}))),
            (std::vector<std::int64_t>{1, 0}));
}

TEST(HfOlmoHybrid, ABaseThatIsNullStandsForNoPositions) {
  const Json rope{{"rope_type", "default"}, {"rope_theta", nullptr}};
  Json json = olmo_hybrid();
  json["rope_parameters"] = rope;  // merge_patch() would drop the null
  const TransformerConfig model = model_of(json);
  EXPECT_EQ(model.position_embedding_type, PositionEmbedding::none);
  const Json written = make_hf_config(model, "olmo_hybrid", "float32", nullptr);
  EXPECT_EQ(written.at("rope_parameters"), rope);
  EXPECT_TRUE(forward_differences(model, model_of(written)).empty());
}

TEST(HfOlmoHybrid, WritesWhatItReads) {
  for (const Json& config :
       {olmo_hybrid(), olmo_hybrid({{"linear_allow_neg_eigval", false}, {"rms_norm_eps", 1e-5}}),
        olmo_hybrid({{"linear_num_key_heads", 2}, {"layer_types", Json(8, "linear_attention")}})}) {
    const TransformerConfig model = model_of(config);
    const Json json = make_hf_config(model, "olmo_hybrid", "float32", nullptr);
    EXPECT_TRUE(forward_differences(model, model_of(json)).empty()) << json;
  }
}

TEST(HfOlmoHybrid, SaysWhatItCannotExpress) {
  TransformerConfig model = model_of(olmo_hybrid());
  model.linear_attention.norm_epsilon.reset();
  expect_user_error([&] { make_hf_config(model, "olmo_hybrid", "float32", nullptr); },
                    {"--linear-norm-epsilon"});
  model = model_of(olmo_hybrid());
  model.norm_placement = NormPlacement::pre;
  expect_user_error([&] { make_hf_config(model, "olmo_hybrid", "float32", nullptr); },
                    {"--norm-placement"});
  expect_user_error(
      [] {
        model_of(olmo_hybrid({{"hidden_act", "gelu"}}));
      },
      {"hidden_act", "silu"});
}

TEST(HfOlmoHybrid, HasNormsByTheKindOfLayer) {
  const Names names{"decoder.layers.0.self_attention.in_proj.layer_norm_weight",
                    "decoder.layers.0.mlp.linear_fc1.layer_norm_weight",
                    "decoder.layers.3.post_self_attn_layernorm.weight",
                    "decoder.layers.3.post_mlp_layernorm.weight"},
      theirs{"0.attention_layer_norm", "0.feedforward_layer_norm", "3.post_attention_layernorm",
             "3.post_feedforward_layernorm"},
      others{"0.input_layernorm", "0.post_attention_layernorm", "3.feedforward_layer_norm"};
  const auto links = map_weights(*find_hf_family("olmo_hybrid"), names, 0);
  for (std::size_t i = 0; i < names.size(); ++i) {
    ASSERT_EQ(links[i].theirs.size(), 1u);
    EXPECT_EQ(links[i].theirs[0].name, "model.layers." + theirs[i] + ".weight");
    ASSERT_EQ(links[i].alternatives.size(), i < others.size() ? 1u : 0u);
    for (const HfTensor& other : links[i].alternatives)
      EXPECT_EQ(other.name, "model.layers." + others[i] + ".weight");
  }
}

TEST(HfOlmoHybrid, HasATensorForEachPartOfTheProjectionAndOfTheConvolution) {
  const Names names{"decoder.layers.0.self_attention.in_proj.weight",
                    "decoder.layers.0.self_attention.conv1d.weight"};
  const auto links = map_weights(*find_hf_family("olmo_hybrid"), names, 0);
  const std::string theirs = "model.layers.0.linear_attn.";
  const char* parts = "qkvgba";
  ASSERT_EQ(links[0].theirs.size(), 6u);
  for (std::size_t block = 0; block < 6; ++block) {
    EXPECT_EQ(links[0].theirs[block].name, theirs + parts[block] + "_proj.weight");
    EXPECT_EQ(links[0].theirs[block].part.blocks.first, block);
  }
  ASSERT_EQ(links[1].theirs.size(), 3u);
  for (std::size_t block = 0; block < 3; ++block)
    EXPECT_EQ(links[1].theirs[block].name, theirs + parts[block] + "_conv1d.weight");
  ASSERT_EQ(links[1].alternatives.size(), 1u);
  EXPECT_EQ(links[1].alternatives[0].name, theirs + "conv1d.weight");
}

}  // namespace
}  // namespace megatron
