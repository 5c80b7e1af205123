#include "megatron/checkpoint/other_family.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

constexpr LayerKind kDense{}, kExperts{.feed_forward = FeedForwardKind::experts},
    kAttention{.feed_forward = FeedForwardKind::none}, kMlp{.mixer = MixerKind::none},
    kExpertsAlone{.mixer = MixerKind::none, .feed_forward = FeedForwardKind::experts};

const std::vector<LayerKind> kGpt{kDense, kExperts},
    kHybrid{kAttention, kMlp, kAttention, kExpertsAlone};  // *-*E

TEST(NameTable, TranslatesBothWays) {
  const std::pair<const char*, const char*> names[] = {
      {"embedding.word_embeddings.weight", "embedding.word_embeddings.weight"},
      {"decoder.layers.0.self_attention.linear_qkv.layer_norm_weight",
       "decoder.layers.0.self_attention.linear_qkv.layer_norm_weight"},
      {"decoder.layers.0.mlp.linear_fc1.weight", "decoder.layers.1.mlp.linear_fc1.weight"},
      {"decoder.layers.1.self_attention.linear_proj.weight",
       "decoder.layers.2.self_attention.linear_proj.weight"},
      {"decoder.layers.1.pre_mlp_layernorm.weight", "decoder.layers.3.pre_mlp_layernorm.weight"},
      {"decoder.layers.1.mlp.experts.linear_fc1.weight",
       "decoder.layers.3.mlp.experts.linear_fc1.weight"},
      {"decoder.final_layernorm.weight", "decoder.final_norm.weight"},
      {"output_layer.weight", "output_layer.weight"},
  };
  const NameTable there = name_table(kGpt, kHybrid), back = name_table(kHybrid, kGpt);
  for (const auto& [gpt, hybrid] : names) {
    EXPECT_EQ(translate_name(there, gpt), hybrid);
    EXPECT_EQ(translate_name(back, hybrid), gpt);
  }
}

TEST(NameTable, NamesAMixerThatIsAlone) {
  const LayerKind both{.mixer = MixerKind::gated_delta_net},
      alone{.mixer = MixerKind::gated_delta_net, .feed_forward = FeedForwardKind::none};
  const NameTable there = name_table({both, kDense}, {alone, kMlp, kAttention, kMlp});
  EXPECT_EQ(translate_name(there, "decoder.layers.0.self_attention.in_proj.weight"),
            "decoder.layers.0.mixer.in_proj.weight");
  EXPECT_EQ(translate_name(there, "decoder.layers.1.self_attention.linear_qkv.weight"),
            "decoder.layers.2.self_attention.linear_qkv.weight");
}

TEST(NameTable, IsEmptyForOtherBlocks) {
  EXPECT_TRUE(name_table(kGpt, {kAttention, kMlp, kAttention}).empty());
  EXPECT_TRUE(name_table(kGpt, {kAttention, kMlp, kAttention, kMlp}).empty()) << "no experts";
  EXPECT_TRUE(name_table(kGpt, {kMlp, kAttention, kAttention, kExpertsAlone}).empty()) << "order";
}

}  // namespace
}  // namespace megatron
