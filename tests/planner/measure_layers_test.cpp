#include "megatron/planner/measure_layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/rank.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr StageCost cost(double forward_s, double activation) {
  return {.forward_s = forward_s,
          .backward_input_s = 2 * forward_s,
          .backward_weight_s = forward_s,
          .activation = activation,
          .weight_gradient = activation};
}

/// A dense layer takes 4 s, an MoE layer 12 s and twice the activations.
LayerTimes two_kinds() {
  return {
      .embedding = cost(0.5, 0),
      .output = cost(2, 0),
      .layers = {{{{}, cost(1, 100)}, {{.feed_forward = FeedForwardKind::experts}, cost(3, 200)}}}};
}

/// Four layers, of which the last two have experts.
TransformerConfig half_moe() {
  TransformerConfig config = tiny_gpt();
  config.num_layers = 4;
  config.moe.num_experts = 4;
  set_experts(config, {0, 0, 1, 1});
  return config;
}

TEST(LayerCosts, AreTheMeanOfBothKinds) {
  const LayerCosts costs = layer_costs(two_kinds(), half_moe());
  EXPECT_EQ(costs.embedding_s, 2);
  EXPECT_EQ(costs.layer_s, (2 * 4 + 2 * 12) / 4.0);
  EXPECT_EQ(costs.output_s, 8);
}

TEST(StageCosts, CountEachLayerAsItsKind) {
  const PipelineLayout layout{.num_ranks = 2,
                              .stages = {{.num_layers = 3, .has_embedding = true},
                                         {.first_layer = 3, .num_layers = 1, .has_output = true}}};
  const CostModel costs = stage_costs(two_kinds(), layout, half_moe());
  ASSERT_EQ(costs.stages.size(), 2u);
  EXPECT_EQ(costs.stages[0].forward_s, 1 + 1 + 3 + 0.5);
  EXPECT_EQ(costs.stages[1].backward_input_s, 2 * (3 + 2));
  // A rank's share is (100 + 100 + 200 + 200) / 2.
  EXPECT_DOUBLE_EQ(costs.stages[0].activation, 400 / 300.0);
  EXPECT_DOUBLE_EQ(costs.stages[1].activation, 200 / 300.0);
}

/// Depths of multi-token prediction embed tokens where they stand, and each has a head with the
/// output.
TEST(StageCosts, CountTheEmbeddingOfEachDepthWhereItStands) {
  TransformerConfig model = half_moe();
  model.mtp_num_layers = 2;
  const PipelineLayout layout{.num_ranks = 3,
                              .stages = {{.num_layers = 4, .has_embedding = true},
                                         {.first_layer = 4, .num_layers = 2, .num_mtp = 2},
                                         {.first_layer = 6, .has_output = true}}};
  const CostModel costs = stage_costs(two_kinds(), layout, model);
  EXPECT_EQ(costs.stages[0].forward_s, 1 + 1 + 3 + 3 + 0.5);
  EXPECT_EQ(costs.stages[1].forward_s, 2 * (3 + 0.5));
  EXPECT_EQ(costs.stages[2].forward_s, 3 * 2);
  EXPECT_EQ(layer_costs(two_kinds(), model).output_s, 3 * 8 + 2 * (2 + 12));
}

TEST(Describe, NamesTheKindsThatTheModelHas) {
  EXPECT_THAT(describe(two_kinds()), HasSubstr("layer 1e+03 / 2e+03 / 1e+03, MoE layer 3e+03"));
  LayerTimes dense = two_kinds();
  dense.layers.entries.pop_back();
  EXPECT_THAT(describe(dense), testing::Not(HasSubstr("MoE")));
  EXPECT_THAT(describe(dense), HasSubstr("output 2e+03 / 4e+03 / 2e+03; message 0"));
}

TEST(MeasureLayers, OfADenseModelHasNoMoeLayer) {
  Settings settings;
  settings.model = tiny_gpt();
  settings.training->micro_batch_size = 1;
  settings.training->seq_length = 8;
  const LayerTimes times = measure_layers(settings, find_model_family("gpt"), Rank{});
  ASSERT_EQ(times.layers.entries.size(), 1u);
  EXPECT_GT(times.layers.of({}).forward_s, 0);
  EXPECT_GT(times.layers.of({}).activation, 0);
}

}  // namespace
}  // namespace megatron
