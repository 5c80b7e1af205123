// What the layers of a stage hold when backward computes some of them again.
#include <gtest/gtest.h>

#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/activation_memory.h"
#include "megatron/planner/step_buffers.h"
#include "support/gpt_traces.h"

namespace megatron {
namespace {

/// Four layers of width 64, the last with 8 experts of width 32 and a shared expert of 48; 10
/// tokens in bf16.
Settings four_layers() {
  Settings settings;
  TransformerConfig& config = *settings.model;
  config.num_layers = 4;
  config.hidden_size = 64;
  config.num_attention_heads = 8;
  config.kv_channels = 8;
  config.ffn_hidden_size = 96;
  config.vocab_size = 32;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 32;
  config.moe.shared_expert_intermediate_size = 48;
  set_experts(config, {0, 0, 0, 1});
  settings.training->micro_batch_size = 1;
  settings.training->seq_length = 10;
  settings.training->bf16 = true;
  return settings;
}

constexpr double kHidden = 10 * 64 * 2;

ActivationPlan every_layer(const LayerPolicy& layer) {
  return {.layers = std::vector<LayerPolicy>(4, layer)};
}

StageActivations stage_of(const std::vector<std::int64_t>& layers, const ActivationPlan& plan,
                          const Settings& settings = four_layers()) {
  return stage_activations(settings, make_rank(Mesh({}, 1), 0), layers, plan, gpt_traces());
}

TEST(RecomputedGroups, KeepTheInputOfTheirFirstLayer) {
  const ActivationPlan plan{
      .layers = {{.full = true}, {.full = true, .joins_previous = true}, {.full = true}, {}}};
  const StageActivations stage = stage_of({0, 1, 2, 3}, plan);
  const double dense = stage.whole[0].kept_bytes(), moe = stage.whole[3].kept_bytes();
  EXPECT_EQ(stage.kept, (std::vector<double>{kHidden, 0, kHidden, moe}));
  EXPECT_EQ(stage.total_kept(), 2 * kHidden + moe);
  EXPECT_EQ(stage.held_at(3), 2 * kHidden + moe);
  EXPECT_EQ(stage.held_at(2), kHidden + dense) << "the group before, and this one as a whole";
  EXPECT_EQ(stage.held_at(1), 2 * dense);
  EXPECT_EQ(stage.held_at(0), dense);
  // The layers 1 and 2 begin another stage: its first layer has no predecessor in its group.
  EXPECT_EQ(stage_of({1, 2}, plan).total_kept(), 2 * kHidden);
}

TEST(StepBuffers, HoldTheActivationsThatBackwardComputesAgain) {
  Settings settings = four_layers();
  settings.model->moe = {};
  resolve_layers(*settings.model);
  const auto peak = [&](const ActivationPlan& plan) {
    const StepShape shape{.layers = {0, 1, 2, 3}, .has_output = false, .activations = plan};
    const StageActivations stage = stage_of(shape.layers, plan, settings);
    return stage.total_kept() +
           step_buffer_bytes(*settings.model, {.tokens = 10, .element_bytes = 2}, shape, stage);
  };
  const double layer = stage_of({0}, {}, settings).total_kept();
  const ActivationPlan each = every_layer({.full = true}),
                       one = every_layer({.full = true, .joins_previous = true});
  EXPECT_EQ(peak({}) - peak(each), 3 * (layer - kHidden)) << "backward has one layer at a time";
  EXPECT_EQ(peak({}) - peak(one), 0) << "one group is all layers at once";
  EXPECT_EQ(peak({}) - peak(every_layer({.recomputed = {LayerNode::mlp}})), 3 * 10 * 96 * 2);
}

}  // namespace
}  // namespace megatron
