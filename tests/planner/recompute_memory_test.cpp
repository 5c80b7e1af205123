// What layers keep when backward computes parts of them again, worked out by hand from the shapes.
#include <gtest/gtest.h>

#include "megatron/config/transformer_config.h"
#include "megatron/planner/activation_memory.h"
#include "megatron/planner/step_buffers.h"

namespace megatron {
namespace {

/// Four layers of width 64, the last with 8 experts of width 32 and a shared expert of 48.
TransformerConfig four_layers() {
  TransformerConfig config;
  config.num_layers = 4;
  config.hidden_size = 64;
  config.num_attention_heads = 8;
  config.kv_channels = 8;
  config.ffn_hidden_size = 96;
  config.moe.num_experts = 8;
  config.moe.router_topk = 2;
  config.moe.ffn_hidden_size = 32;
  config.moe.shared_expert_intermediate_size = 48;
  set_experts(config, {0, 0, 0, 1});
  return config;
}

const ActivationLayout kTenTokens{.tokens = 10, .element_bytes = 2};
constexpr double kHidden = 10 * 64 * 2;

RecomputePlan every_layer(const LayerRecompute& layer) {
  return {.layers = std::vector<LayerRecompute>(4, layer)};
}

double kept_less(std::int64_t layer, const LayerRecompute& recompute) {
  const LayerActivations whole = layer_activations(four_layers(), layer, kTenTokens);
  return whole.total() - kept_activations(whole, recompute).total();
}

TEST(LayerActivations, AddUpToWhatALayerKeeps) {
  const LayerActivations dense = layer_activations(four_layers(), 0, kTenTokens);
  EXPECT_EQ(dense.input, kHidden);
  EXPECT_EQ(dense.attention_norm, kHidden);
  EXPECT_EQ(dense.residual, kHidden);
  EXPECT_EQ(dense.mlp_norm, kHidden);
  EXPECT_EQ(dense.statistics, 10 * 2 * 2 * 4) << "mean and rstd of two norms in float32";
  EXPECT_EQ(dense.qkv, 3 * kHidden) << "8 heads of 8 channels for each of q, k and v";
  EXPECT_EQ(dense.core_attention, kHidden + 10 * 8 * 4) << "the result and the log-sum-exp";
  EXPECT_EQ(dense.mlp, 10 * 96 * 2);
  EXPECT_EQ(dense.experts + dense.shared_experts, 0);
  EXPECT_EQ(dense.total(), layer_activation_bytes(four_layers(), 0, kTenTokens));
  const LayerActivations moe = layer_activations(four_layers(), 3, kTenTokens);
  EXPECT_EQ(moe.mlp, 0);
  EXPECT_EQ(moe.shared_experts, 10 * 48 * 2);
  EXPECT_EQ(moe.feed_forward(), moe_activation_bytes(four_layers(), kTenTokens));
}

TEST(RecomputedParts, AreNotKept) {
  EXPECT_EQ(kept_less(0, {.layernorm = true}), 2 * kHidden) << "the results of both norms";
  EXPECT_EQ(kept_less(0, {.mlp = true}), 10 * 96 * 2) << "the result of the first GEMM";
  EXPECT_EQ(kept_less(0, {.moe = true, .shared_experts = true}), 0) << "a dense layer has none";
  EXPECT_EQ(kept_less(3, {.shared_experts = true}), 10 * 48 * 2);
  EXPECT_EQ(kept_less(3, {.moe = true}), moe_activation_bytes(four_layers(), kTenTokens));
  EXPECT_EQ(kept_less(3, {.mlp = true}), 0);
}

double moved(std::int64_t layer, const LayerOffload& parts, std::int64_t min_elements = 0,
             const LayerRecompute& recompute = {}) {
  const OffloadPlan plan{.layers = std::vector<LayerOffload>(4, parts),
                         .min_elements = min_elements};
  return stage_activations(four_layers(), {layer}, every_layer(recompute), kTenTokens, plan)
      .total_offloaded();
}

TEST(OffloadedParts, AreWhatNoOtherOpKeeps) {
  EXPECT_EQ(moved(0, {.attn_norm = true}), kHidden);
  EXPECT_EQ(moved(0, {.qkv_linear = true}), kHidden);
  EXPECT_EQ(moved(0, {.core_attn = true}), 3 * kHidden) << "the result stays for the projection";
  EXPECT_EQ(moved(0, {.attn_proj = true}), 0) << "the result stays for attention";
  EXPECT_EQ(moved(0, {.core_attn = true, .attn_proj = true}), 4 * kHidden + 10 * 8 * 4);
  EXPECT_EQ(moved(0, {.mlp_norm = true}), kHidden);
  EXPECT_EQ(moved(0, {.mlp = true}), kHidden + 10 * 96 * 2) << "its input and the first GEMM's";
  EXPECT_EQ(moved(3, {.mlp = true}), 0) << "a layer with experts has none";
  EXPECT_EQ(moved(3, {.expert_fc1 = true}), 20 * 64 * 2);
  EXPECT_EQ(moved(3, {.moe_act = true}), 20 * 32 * 2);
  EXPECT_EQ(moved(0, {.mlp = true}, /*min_elements=*/10 * 64 + 1), 10 * 96 * 2);
  EXPECT_EQ(moved(0, {.mlp = true}, 0, {.mlp = true}), kHidden) << "but for what is recomputed";
  EXPECT_EQ(moved(0, {.mlp = true}, 0, {.group = 1}), 0) << "a whole layer keeps its input";
}

TEST(RecomputedGroups, KeepTheInputOfTheirFirstLayer) {
  RecomputePlan plan{.layers = {{.group = 1}, {.group = 1}, {.group = 2}, {}}};
  const StageActivations stage = stage_activations(four_layers(), {0, 1, 2, 3}, plan, kTenTokens);
  const double dense = stage.whole[0].total(), moe = stage.whole[3].total();
  EXPECT_EQ(stage.kept, (std::vector<double>{kHidden, 0, kHidden, moe}));
  EXPECT_EQ(stage.total_kept(), 2 * kHidden + moe);
  EXPECT_EQ(stage.held_at(3), 2 * kHidden + moe);
  EXPECT_EQ(stage.held_at(2), kHidden + dense) << "the group before, and this one as a whole";
  EXPECT_EQ(stage.held_at(1), 2 * dense);
  EXPECT_EQ(stage.held_at(0), dense);
  // The layers 1 and 2 begin another stage: its first layer has no predecessor in its group.
  EXPECT_EQ(stage_activations(four_layers(), {1, 2}, plan, kTenTokens).total_kept(), 2 * kHidden);
  ActivationLayout halves = kTenTokens;
  halves.tensor_parallel = 2;
  plan.distributes_saved_activations = true;
  EXPECT_EQ(stage_activations(four_layers(), {0, 1}, plan, halves).total_kept(), kHidden / 2);
}

TEST(StepBuffers, HoldTheActivationsThatBackwardComputesAgain) {
  TransformerConfig config = four_layers();
  config.moe = {};
  const auto peak = [&](const RecomputePlan& plan) {
    const StepShape shape{.layers = {0, 1, 2, 3}, .has_output = false, .recompute = plan};
    return stage_activations(config, shape.layers, plan, kTenTokens).total_kept() +
           step_buffer_bytes(config, kTenTokens, shape);
  };
  const double layer = layer_activation_bytes(config, 0, kTenTokens);
  RecomputePlan each{.layers = {{.group = 1}, {.group = 2}, {.group = 3}, {.group = 4}}};
  EXPECT_EQ(peak({}) - peak(each), 3 * (layer - kHidden)) << "backward has one layer at a time";
  EXPECT_EQ(peak({}) - peak(every_layer({.group = 1})), 0) << "one group is all layers at once";
  EXPECT_EQ(peak({}) - peak(every_layer({.mlp = true})), 3 * 10 * 96 * 2);
}

}  // namespace
}  // namespace megatron
