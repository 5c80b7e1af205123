#include "megatron/config/activation_plan.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "megatron/config/byte_count.h"
#include "megatron/config/memory_config.h"

namespace megatron {
namespace {

TEST(ActivationPlan, TextAndBack) {
  const std::vector<LayerActivationPolicy> layers{
      {.full = true}, {.full = true}, {}, {.layernorm = true, .mlp = true, .offload = true}};
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
  const auto layers = parse_activation_plan("none,full*2,mlp+offload").value();
  const RecomputePlan recompute = recompute_plan(layers);
  EXPECT_EQ(recompute.of(0), LayerRecompute{});
  EXPECT_NE(recompute.of(1).group, 0);
  EXPECT_NE(recompute.of(1).group, recompute.of(2).group) << "each layer is a group of its own";
  EXPECT_TRUE(recompute.of(3).mlp);
  const OffloadPlan offload = offload_plan(layers, 1);
  EXPECT_FALSE(offload.of(2).any());
  EXPECT_TRUE(offload.of(3).whole);
}

// Megatron-LM: uniform groups divide a stage from its first layer on, block takes the first layers.
TEST(RecomputePlan, GroupsLayersOfEachStage) {
  const PipelineLayout layout{
      .num_ranks = 2,
      .stages = {{.first_layer = 0, .num_layers = 3}, {.first_layer = 3, .num_layers = 2}}};
  const auto groups = [&](const RecomputeConfig& config) {
    std::vector<std::int64_t> all;
    for (std::int64_t layer = 0; layer < 5; ++layer)
      all.push_back(recompute_plan(MemoryConfig{.recompute = config}, layout).of(layer).group);
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
            (std::vector<std::int64_t>{1, 0, 3, 0, 5}));
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
      parse_activation_plan, [](const std::vector<LayerActivationPolicy>& layers) {
        EXPECT_EQ(parse_activation_plan(activation_plan_text(layers)), layers);
      });
}

TEST(ByteCount, AnyTextIsAFiniteSizeOrRefused) {
  parse_damaged(2, {"20GB", "512 MiB", "1.5e9", "2g", "7b"}, byte_count,
                [](double bytes) { EXPECT_TRUE(std::isfinite(bytes) && bytes > 0); });
}

}  // namespace
}  // namespace megatron
