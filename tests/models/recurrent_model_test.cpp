// Models with recurrent layers: the names of their weights, and how tensor parallelism divides
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "megatron/config/layer_plan.h"
#include "megatron/config/transformer_config.h"
#include "megatron/models/gpt_model.h"
#include "megatron/parallel/rank.h"
#include "support/tensor_parallel.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

TransformerConfig recurrent(const std::string& pattern) {
  TransformerConfig config = tiny_gpt();
  make_llama(config);
  config.mamba = {.state_dim = 3, .head_dim = 5, .num_groups = 2, .num_heads = 4};
  config.linear_attention = {.variant = AttentionVariant::gated_delta_net,
                             .freq = "2",
                             .key_head_dim = 3,
                             .value_head_dim = 4,
                             .num_key_heads = 2,
                             .num_value_heads = 4};
  config.hybrid_layer_pattern = pattern;
  if (!pattern.empty()) config.linear_attention.variant = AttentionVariant::none;
  resolve_layers(config);
  return config;
}

std::map<std::string, Shape> local_shapes(const ModelSpec& spec, const TransformerConfig& config,
                                          std::int64_t tp) {
  Rank rank;
  rank.tp = {.name = "tp", .rank = 0, .size = tp};
  std::map<std::string, Shape> shapes;
  const auto model = make_model(spec, config, rank, {});
  for (const Parameter* parameter : declared_parameters(*model))
    shapes[parameter->name()] = parameter->local_shape();
  return shapes;
}

TEST(RecurrentModel, HybridLayersAreMixers) {
  const TransformerConfig config = recurrent("MG*-");
  const auto names = local_shapes(hybrid_spec(config), config, 1);
  const std::string first = "decoder.layers.0.mixer.", second = "decoder.layers.1.mixer.";
  EXPECT_EQ(names.at(first + "in_proj.weight"), (Shape{2 * 20 + 2 * 6 + 4, 12}));
  EXPECT_EQ(names.at(first + "conv1d.weight"), (Shape{32, 1, 4}));
  EXPECT_EQ(names.at(second + "in_proj.weight"), (Shape{2 * 6 + 2 * 16 + 2 * 4, 12}));
  EXPECT_EQ(names.at(second + "out_norm.weight"), (Shape{4}));
  EXPECT_TRUE(names.contains("decoder.layers.2.self_attention.linear_qkv.weight"));
  EXPECT_TRUE(names.contains("decoder.final_norm.weight"));
}

TEST(RecurrentModel, GatedDeltaNetsTakeThePlaceOfAttention) {
  const TransformerConfig config = recurrent("");
  const auto names = local_shapes(gpt_spec(config), config, 1);
  EXPECT_TRUE(names.contains("decoder.layers.0.self_attention.in_proj.layer_norm_weight"));
  EXPECT_TRUE(names.contains("decoder.layers.0.mlp.linear_fc1.weight"));
  EXPECT_TRUE(names.contains("decoder.layers.1.self_attention.linear_qkv.weight"));
}

/// A layer with a gated delta net and one with attention, as in OLMo Hybrid.
TransformerConfig olmo_hybrid() {
  TransformerConfig config = recurrent("");
  config.norm_placement = NormPlacement::output_unless_recurrent;
  config.linear_attention.allow_neg_eigval = true;
  config.linear_attention.norm_epsilon = 1e-3;
  return config;
}

TEST(RecurrentModel, NormsMayFollowAttentionAndPrecedeDeltaNets) {
  const TransformerConfig config = olmo_hybrid();
  const auto shapes = local_shapes(gpt_spec(config), config, 1);
  for (const char* norm :
       {"0.self_attention.in_proj.layer_norm_weight", "0.mlp.linear_fc1.layer_norm_weight",
        "1.post_self_attn_layernorm.weight", "1.post_mlp_layernorm.weight"})
    EXPECT_TRUE(shapes.contains(std::string("decoder.layers.") + norm)) << norm;
  for (const char* norm :
       {"0.post_self_attn_layernorm.weight", "0.post_mlp_layernorm.weight",
        "1.self_attention.linear_qkv.layer_norm_weight", "1.mlp.linear_fc1.layer_norm_weight"})
    EXPECT_FALSE(shapes.contains(std::string("decoder.layers.") + norm)) << norm;
}

/// With four ranks and two groups, two ranks have the same B and C, or queries and keys.
TEST(RecurrentModel, RanksShareGroups) {
  TransformerConfig config = recurrent("MG");
  config.num_attention_heads = 4;
  const auto shapes = local_shapes(hybrid_spec(config), config, 4);
  EXPECT_EQ(shapes.at("decoder.layers.0.mixer.in_proj.weight")[0], 5 + 5 + 3 + 3 + 1);
  EXPECT_EQ(shapes.at("decoder.layers.0.mixer.D"), (Shape{1}));
  EXPECT_EQ(shapes.at("decoder.layers.1.mixer.in_proj.weight")[0], 3 + 3 + 4 + 4 + 1 + 1);
}

/// The gated norm of Mamba-2 covers the channels of two ranks then.
TEST(RecurrentModel, TensorParallelRanksHaveTheGradientsOfOne) {
  for (const TransformerConfig& config : {recurrent("M-"), recurrent("G-"), olmo_hybrid()}) {
    SCOPED_TRACE(config.hybrid_layer_pattern);
    const Microbatch microbatch = patterned_batch(2, 8, config.vocab_size);
    const GptResult one = run_gpt(config, microbatch, {});
    for (const bool is_sequence_parallel : {false, true}) {
      const GptResult four = run_gpt(
          config, microbatch, {.layout = {.tp = 4, .sequence_parallel = is_sequence_parallel}});
      EXPECT_NEAR(four.loss, one.loss, 1e-12);
      for (const auto& [name, gradient] : one.gradients)
        EXPECT_LE((four.gradients.at(name) - gradient).abs().max().item<double>(), 1e-11) << name;
    }
  }
}

}  // namespace
}  // namespace megatron
