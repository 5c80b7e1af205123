#include "megatron/planner/policy_times.h"

#include <gtest/gtest.h>

#include "megatron/config/transformer_config.h"
#include "megatron/ops/offload_store.h"

namespace megatron {
namespace {

StageCost cost(double forward_s, double input_s, double weight_s) {
  return {.forward_s = forward_s, .backward_input_s = input_s, .backward_weight_s = weight_s};
}

/// Times of a dense model whose layers take 6 s, and more the more they recompute. The third policy
/// was disturbed: it seems to take less than the second.
PolicyTimes times() {
  PolicyTimes measured{
      .policies = recomputations({}), .times = {}, .offload = {.write = 100, .read = 50}};
  for (const double more_s : {0.0, 0.5, 0.2, 1.0, 2.0}) {
    LayerTimes times;
    times.layers[{}] = cost(2, 3 + more_s, 1);
    measured.times.push_back(times);
  }
  return measured;
}

double layer_s(const LayerPolicy& policy, double offloaded_bytes = 0) {
  return times().layer_s(policy, /*kind=*/{}, offloaded_bytes);
}

TEST(PolicyTimes, MoreRecomputationNeverTakesLessTime) {
  EXPECT_DOUBLE_EQ(layer_s({}), 6);
  EXPECT_DOUBLE_EQ(layer_s({.recomputed = {LayerNode::layernorm}}), 6.5);
  EXPECT_DOUBLE_EQ(layer_s({.recomputed = {LayerNode::mlp}}), 6.5 + 1e-3 * 6)
      << "in spite of its measured 6.2 s";
  EXPECT_DOUBLE_EQ(layer_s({.recomputed = {LayerNode::layernorm, LayerNode::mlp}}), 7);
  EXPECT_DOUBLE_EQ(layer_s({.full = true}), 8);
}

TEST(PolicyTimes, OffloadCostsWhatComputationDoesNotHide) {
  EXPECT_DOUBLE_EQ(layer_s({.offload = true}, 100), 6 + 1e-3 * 6) << "both ways are hidden";
  // 400 bytes are written in 4 s, of which forward hides 2, and read in 8 s, of which backward
  // hides 4.
  EXPECT_DOUBLE_EQ(layer_s({.offload = true}, 400), 6 + 1e-3 * 6 + 2 + 4);
  EXPECT_DOUBLE_EQ(layer_s({.full = true, .offload = true}, 100), 8 + 1e-3 * 6);
}

TEST(PolicyTimes, LayersWithoutExpertsHaveNoPoliciesForThem) {
  TransformerConfig model;
  model.num_layers = 2;
  using enum LayerNode;
  for (const LayerPolicy& policy :
       for_every_layer(model, {.recomputed = {mlp, moe, shared_experts}}))
    EXPECT_EQ(policy, (LayerPolicy{.recomputed = {mlp}}));
}

}  // namespace
}  // namespace megatron
