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

ActivationPlan every_layer(const LayerPolicy& layer) {
  return {.layers = std::vector<LayerPolicy>(4, layer)};
}

double kept_less(std::int64_t layer, NodeSet recomputed) {
  const LayerActivations whole = layer_activations(four_layers(), layer, kTenTokens);
  return whole.total() - kept_activations(whole, recomputed).total();
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
  using enum LayerNode;
  EXPECT_EQ(kept_less(0, {layernorm}), 2 * kHidden) << "the results of both norms";
  EXPECT_EQ(kept_less(0, {mlp}), 10 * 96 * 2) << "the result of the first GEMM";
  EXPECT_EQ(kept_less(0, {moe, shared_experts}), 0) << "a dense layer has none";
  EXPECT_EQ(kept_less(3, {shared_experts}), 10 * 48 * 2);
  EXPECT_EQ(kept_less(3, {moe}), moe_activation_bytes(four_layers(), kTenTokens));
  EXPECT_EQ(kept_less(3, {mlp}), 0);
}

double moved(std::int64_t layer, NodeSet offloaded, std::int64_t min_elements = 0,
             LayerPolicy policy = {}) {
  policy.offloaded = offloaded;
  ActivationPlan plan = every_layer(policy);
  plan.min_offloaded_elements = min_elements;
  return stage_activations(four_layers(), {layer}, plan, kTenTokens).total_offloaded();
}

TEST(OffloadedParts, AreWhatNoOtherOpKeeps) {
  using enum LayerNode;
  EXPECT_EQ(moved(0, {attn_norm}), kHidden);
  EXPECT_EQ(moved(0, {qkv_linear}), kHidden);
  EXPECT_EQ(moved(0, {core_attn}), 3 * kHidden) << "the result stays for the projection";
  EXPECT_EQ(moved(0, {attn_proj}), 0) << "the result stays for attention";
  EXPECT_EQ(moved(0, {core_attn, attn_proj}), 4 * kHidden + 10 * 8 * 4);
  EXPECT_EQ(moved(0, {mlp_norm}), kHidden);
  EXPECT_EQ(moved(0, {mlp}), kHidden + 10 * 96 * 2) << "its input and the first GEMM's";
  EXPECT_EQ(moved(3, {mlp}), 0) << "a layer with experts has none";
  EXPECT_EQ(moved(3, {expert_fc1}), 20 * 64 * 2);
  EXPECT_EQ(moved(3, {moe_act}), 20 * 32 * 2);
  EXPECT_EQ(moved(0, {mlp}, /*min_elements=*/10 * 64 + 1), 10 * 96 * 2);
  EXPECT_EQ(moved(0, {mlp}, 0, {.recomputed = {mlp}}), kHidden) << "but for what is recomputed";
  EXPECT_EQ(moved(0, {mlp}, 0, {.full = true}), 0) << "a whole layer keeps its input";
}

TEST(RecomputedGroups, KeepTheInputOfTheirFirstLayer) {
  ActivationPlan plan{
      .layers = {{.full = true}, {.full = true, .joins_previous = true}, {.full = true}, {}}};
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
  const auto peak = [&](const ActivationPlan& plan) {
    const StepShape shape{.layers = {0, 1, 2, 3}, .has_output = false, .activations = plan};
    return stage_activations(config, shape.layers, plan, kTenTokens).total_kept() +
           step_buffer_bytes(config, kTenTokens, shape);
  };
  const double layer = layer_activation_bytes(config, 0, kTenTokens);
  const ActivationPlan each = every_layer({.full = true}),
                       one = every_layer({.full = true, .joins_previous = true});
  EXPECT_EQ(peak({}) - peak(each), 3 * (layer - kHidden)) << "backward has one layer at a time";
  EXPECT_EQ(peak({}) - peak(one), 0) << "one group is all layers at once";
  EXPECT_EQ(peak({}) - peak(every_layer({.recomputed = {LayerNode::mlp}})), 3 * 10 * 96 * 2);
}

}  // namespace
}  // namespace megatron
