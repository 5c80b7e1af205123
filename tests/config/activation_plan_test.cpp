#include "megatron/config/activation_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "megatron/config/byte_count.h"
#include "megatron/config/memory_config.h"

namespace megatron {
namespace {

TEST(ActivationPlan, TextAndBack) {
  const std::vector<LayerPolicy> layers{
      {.full = true},
      {.full = true},
      {},
      {.recomputed = {LayerNode::layernorm, LayerNode::mlp}, .offload = true}};
  const std::string text = "full*2,none,layernorm+mlp+offload";
  EXPECT_EQ(activation_plan_text(layers), text);
  EXPECT_EQ(parse_activation_plan(text), layers);
}

TEST(ActivationPlan, MalformedTextsAreRefused) {
  for (const char* text : {"", "full*0", "full*-1", "full*", "*3", "ful", "full+", "full,,none",
                           "none+full", "full+full", "full*1e3", "full*999999999999", "full none"})
    EXPECT_FALSE(parse_activation_plan(text)) << text;
}

TEST(ActivationPlan, BecomesRecomputationAndOffload) {
  MemoryConfig memory;
  memory.activation_plan = "none,full*2,mlp+offload";
  memory.offload.min_offloaded_tensor_size = 1;
  const ActivationPlan plan = activation_plan(memory, single_stage_layout(4));
  EXPECT_EQ(plan.of(0), LayerPolicy{});
  EXPECT_TRUE(plan.of(1).full && plan.of(2).full);
  EXPECT_FALSE(plan.of(2).joins_previous) << "each layer is a group of its own";
  EXPECT_FALSE(plan.of(2).offloads());
  EXPECT_EQ(plan.of(3).recomputed, NodeSet{LayerNode::mlp});
  EXPECT_TRUE(plan.of(3).offload);
  EXPECT_EQ(plan.min_offloaded_elements, 1);
}

// Megatron-LM's flags, --offload-modules and --recompute-modules.
TEST(ActivationPlan, FlagsNameNodes) {
  MemoryConfig memory;
  memory.recompute.recompute_granularity = "selective";
  memory.recompute.recompute_modules = {"core_attn", "moe", "mhc", "layernorm"};
  memory.offload.fine_grained_activation_offloading = true;
  memory.offload.offload_modules = {"moe_act", "core_attn"};
  memory.offload.activation_offload_fraction = 0.5;
  const ActivationPlan plan = activation_plan(memory, single_stage_layout(2));
  EXPECT_EQ(plan.of(0), (LayerPolicy{.recomputed = {LayerNode::layernorm, LayerNode::moe}}))
      << "kernels recompute core_attn, and no layer has mhc";
  EXPECT_EQ(plan.of(1), (LayerPolicy{.recomputed = {LayerNode::layernorm, LayerNode::moe},
                                     .offloaded = {LayerNode::core_attn, LayerNode::moe_act}}));
}

TEST(LayerNodes, AreThoseOfTheBlocksOfALayer) {
  EXPECT_EQ(nodes_of({.mixer = MixerKind::none}),
            (NodeSet{LayerNode::layernorm, LayerNode::mlp_norm, LayerNode::mlp}));
  EXPECT_EQ(nodes_of({.feed_forward = FeedForwardKind::none}),
            (NodeSet{LayerNode::attn_norm, LayerNode::qkv_linear, LayerNode::core_attn,
                     LayerNode::attn_proj, LayerNode::layernorm}));
  EXPECT_EQ(nodes_of({.mixer = MixerKind::latent_attention, .feed_forward = FeedForwardKind::none}),
            (NodeSet{LayerNode::attn_norm, LayerNode::qkv_linear, LayerNode::core_attn,
                     LayerNode::attn_proj, LayerNode::layernorm, LayerNode::mla_up_proj}));
  EXPECT_EQ(nodes_of({.mixer = MixerKind::none, .feed_forward = FeedForwardKind::experts}),
            (NodeSet{LayerNode::layernorm, LayerNode::mlp_norm, LayerNode::moe,
                     LayerNode::expert_fc1, LayerNode::moe_act, LayerNode::shared_experts}));
}

// Megatron-LM: uniform groups divide a stage from its first layer on, block takes the first layers.
TEST(ActivationPlan, GroupsLayersOfEachStage) {
  const PipelineLayout layout{
      .num_ranks = 2,
      .stages = {{.first_layer = 0, .num_layers = 3}, {.first_layer = 3, .num_layers = 2}}};
  const auto groups = [&](const RecomputeConfig& config) {
    std::vector<std::int64_t> all;
    std::int64_t group = 0;
    for (const LayerPolicy& layer :
         activation_plan(MemoryConfig{.recompute = config}, layout).layers) {
      if (layer.full && !layer.joins_previous) ++group;
      all.push_back(layer.full ? group : 0);
    }
    return all;
  };
  EXPECT_EQ(groups({.recompute_granularity = "full"}), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(groups({.recompute_granularity = "full", .recompute_num_layers = 2}),
            (std::vector<std::int64_t>{1, 1, 2, 3, 3}));
  EXPECT_EQ(groups({.recompute_granularity = "full",
                    .recompute_method = "block",
                    .recompute_num_layers = 1}),
            (std::vector<std::int64_t>{1, 0, 0, 2, 0}));
  EXPECT_EQ(groups({.recompute_granularity = "full", .recompute_layers = "[1,0,1,0,1]"}),
            (std::vector<std::int64_t>{1, 0, 2, 0, 3}));
}

TEST(ByteCount, ReadsUnits) {
  EXPECT_EQ(byte_count("20GB"), 20e9);
  EXPECT_EQ(byte_count("512 MiB"), 512.0 * 1024 * 1024);
  EXPECT_EQ(byte_count("1.5e9"), 1.5e9);
  EXPECT_EQ(byte_count("2g"), 2e9);
  EXPECT_EQ(byte_count("7b"), 7);
  EXPECT_EQ(byte_count("1PB"), 1e15);
  for (const char* text : {"", "GB", "-1GB", "0", "20 G B", "20XB", "nan", "inf", "1e400", "0x10",
                           "1e18", "99999999999999999999 GB"})
    EXPECT_FALSE(byte_count(text)) << text;
}

/// Changes, removes or adds a few characters.
std::string damaged(std::string text, std::mt19937& random) {
  for (unsigned count = 1 + random() % 4; count > 0; --count) {
    const std::size_t at = random() % (text.size() + 1);
    const std::string characters = "0123456789*+,-. eEGMkKiBbnoefulmpx";
    switch (random() % 3) {
      case 0:
        text.insert(at, 1, characters[random() % characters.size()]);
        break;
      case 1:
        text.erase(at, 1 + random() % 3);
        break;
      default:
        if (at < text.size()) text[at] = static_cast<char>(random() % 256);
        break;
    }
  }
  return text;
}

/// Parses 20,000 damaged texts. Calls `check` with what was read of those that are accepted, which
/// must be some.
void parse_damaged(unsigned seed, const std::vector<std::string>& valid, const auto& parse,
                   const auto& check) {
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = damaged(valid[random() % valid.size()], random);
    SCOPED_TRACE(text);
    const auto value = parse(text);
    if (!value) continue;
    ++accepted;
    check(*value);
  }
  EXPECT_GT(accepted, 100);
}

TEST(ActivationPlan, AnyTextIsAPlanThatPrintsBackOrIsRefused) {
  parse_damaged(
      1,
      {"full*2,none,layernorm+mlp+offload", "none", "moe*12", "shared_experts+moe,full+offload*3"},
      parse_activation_plan, [](const std::vector<LayerPolicy>& layers) {
        EXPECT_EQ(parse_activation_plan(activation_plan_text(layers)), layers);
      });
}

TEST(ByteCount, AnyTextIsAFiniteSizeOrRefused) {
  parse_damaged(2, {"20GB", "512 MiB", "1.5e9", "2g", "7b"}, byte_count,
                [](double bytes) { EXPECT_TRUE(std::isfinite(bytes) && bytes > 0); });
}

}  // namespace
}  // namespace megatron
