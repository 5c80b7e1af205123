// config.json and tensors of the T5 families.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/base/json.h"
#include "megatron/config/transformer_config.h"
#include "megatron/config/transformer_enums.h"
#include "megatron/models/architecture.h"
#include "megatron/models/hf/hf_config.h"
#include "megatron/models/hf/weight_map.h"
#include "support/message_of.h"

namespace megatron {
namespace {

/// Returns the keys that every T5 has, and then `changes`.
Json t5(const std::string& model_type, const Json& changes = Json::object()) {
  Json json = {{"model_type", model_type},
               {"is_encoder_decoder", true},
               {"vocab_size", 64},
               {"num_layers", 2},
               {"d_model", 32},
               {"num_heads", 4},
               {"d_kv", 6},
               {"d_ff", 48}};
  json.update(changes);
  return json;
}

TransformerConfig model_of(const Json& json) { return parse_hf_config(json, "config.json").model; }

// The expected values are the defaults of the configuration classes in transformers 5.
TEST(HfConfigT5, TakesTheFamilysDefaults) {
  const HfConfig config = parse_hf_config(t5("t5"), "c");
  const TransformerConfig& model = config.model;
  EXPECT_EQ(model.num_layers, 4);
  EXPECT_EQ(model.decoder_num_layers, 2);
  EXPECT_EQ(model.kv_channels, 6);
  EXPECT_EQ(model.position_embedding_type, PositionEmbedding::relative);
  EXPECT_EQ(model.relative_attention_num_buckets, 32);
  EXPECT_EQ(model.relative_attention_max_distance, 128);
  EXPECT_EQ(model.normalization, Normalization::RMSNorm);
  EXPECT_EQ(model.norm_epsilon, 1e-6);
  EXPECT_EQ(model.softmax_scale, 1.0);
  EXPECT_EQ(model.hidden_dropout, 0.1);
  EXPECT_EQ(model.attention_dropout, 0.1);
  EXPECT_EQ(model.activation, Activation::relu);
  EXPECT_EQ(model.logit_scale, 1 / std::sqrt(32.0));
  EXPECT_FALSE(model.gated_linear_unit || model.untie_embeddings_and_output_weights ||
               model.add_bias_linear || model.relative_attention_per_layer);
  for (const char* type : {"mt5", "umt5"}) {
    const TransformerConfig gated = model_of(t5(type));
    EXPECT_TRUE(gated.gated_linear_unit);
    EXPECT_EQ(gated.activation, Activation::gelu_tanh);
    EXPECT_EQ(gated.logit_scale, type == std::string("umt5") ? 1 / std::sqrt(32.0) : 1);
    EXPECT_EQ(gated.relative_attention_per_layer, type == std::string("umt5"));
  }
}

TEST(HfConfigT5, ReadsTheKeysOfVersion11) {
  const TransformerConfig older = model_of(t5("t5", {{"feed_forward_proj", "gated-gelu"},
                                                     {"num_decoder_layers", 3},
                                                     {"tie_word_embeddings", false}})),
                          newer = model_of(t5("t5", {{"feed_forward_proj", "gated-gelu"},
                                                     {"scale_decoder_outputs", false}}));
  EXPECT_EQ(older.encoder_num_layers(), 2);
  EXPECT_EQ(older.decoder_num_layers, 3);
  EXPECT_TRUE(older.untie_embeddings_and_output_weights);
  EXPECT_FALSE(newer.untie_embeddings_and_output_weights);
  for (const TransformerConfig& model : {older, newer}) {
    EXPECT_TRUE(model.gated_linear_unit);
    EXPECT_EQ(model.logit_scale, 1);
    const Json fresh = make_hf_config(model, "t5", "float32", nullptr);
    EXPECT_TRUE(forward_differences(model, model_of(fresh)).empty()) << fresh;
    EXPECT_TRUE(forward_differences(model, architecture_from_json(architecture_to_json(model), "m"))
                    .empty());
  }
}

TEST(HfConfigT5, RefusesOtherProjectionsAndOtherEncoders) {
  EXPECT_NE(message_of([] {
              model_of(t5("t5", {{"feed_forward_proj", "gated-mish"}}));
            }).find("feed_forward_proj"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              model_of({{"model_type", "llama"}, {"is_encoder_decoder", true}});
            }).find("is_encoder_decoder"),
            std::string::npos);
  for (const char* key : {"add_cross_attention", "scale_attn_by_inverse_layer_idx"})
    EXPECT_NE(message_of([&] { model_of(t5("t5", {{key, true}})); }).find(key), std::string::npos);
}

TEST(HfConfigT5, RefusesBucketsThatDoNotReachTheLargestDistance) {
  EXPECT_NE(message_of([] {
              model_of(t5("t5", {{"relative_attention_num_buckets", 3}}));
            }).find("'relative_attention_num_buckets' must be between 4"),
            std::string::npos);
  EXPECT_NE(message_of([] {
              model_of(t5("t5", {{"relative_attention_max_distance", 16}}));
            }).find("16 is not above half of"),
            std::string::npos);
  EXPECT_EQ(
      model_of(t5("t5", {{"relative_attention_max_distance", 17}})).relative_attention_max_distance,
      17);
}

TEST(HfConfigT5, MapsTheProjectionsOfEitherKindOfMlp) {
  const std::vector<std::string> names{"decoder.layers.1.mlp.linear_fc1.weight",
                                       "decoder.layers.1.cross_attention.linear_kv.weight",
                                       "encoder_relative_pos_emb.relative_attention_bias.weight"};
  const HfFamily& family = *find_hf_family("t5");
  const auto plain = map_weights(family, names, 0),
             gated = map_weights(family, names, 0, {.is_gated = true});
  ASSERT_EQ(plain[0].theirs.size(), 1u);
  EXPECT_EQ(plain[0].theirs[0].name, "decoder.block.1.layer.2.DenseReluDense.wi.weight");
  ASSERT_EQ(gated[0].theirs.size(), 2u);
  EXPECT_EQ(gated[0].theirs[1].name, "decoder.block.1.layer.2.DenseReluDense.wi_1.weight");
  ASSERT_EQ(plain[1].theirs.size(), 2u);
  EXPECT_EQ(plain[1].theirs[0].name, "decoder.block.1.layer.1.EncDecAttention.k.weight");
  EXPECT_EQ(plain[2].theirs[0].name,
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
}

}  // namespace
}  // namespace megatron
