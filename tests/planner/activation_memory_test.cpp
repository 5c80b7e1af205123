#include "megatron/planner/activation_memory.h"

#include <gtest/gtest.h>

#include <numeric>

#include "megatron/config/moe_config.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "megatron/planner/communication_volume.h"

namespace megatron {
namespace {

TEST(ExpertRows, DependOnBothTensorParallelSizes) {
  MoeConfig moe;
  moe.num_experts = 8;
  moe.router_topk = 2;
  ActivationLayout layout{.tokens = 10, .tensor_parallel = 2};
  EXPECT_EQ(expert_rows(moe, layout), 10) << "of a half of the tokens";
  layout.expert_tensor_parallel = 2;
  EXPECT_EQ(expert_rows(moe, layout), 20);
}

// Two dense layers of width 64 take 10 tokens in bf16: 1280 bytes, of which each rank of tp has a
// half. Attention and MLP of a layer exchange them 5 times (LayerTrace.SendsHiddenRowsOver…).
TEST(ActivationVolume, OfOneStepByAxis) {
  Settings settings;
  TransformerConfig& model = *settings.model;
  model.num_layers = 2;
  model.hidden_size = 64;
  model.num_attention_heads = 8;
  model.kv_channels = 8;
  model.ffn_hidden_size = 96;
  model.vocab_size = 32;
  settings.training->micro_batch_size = 1;
  settings.training->seq_length = 10;
  settings.training->bf16 = true;
  settings.parallel->tensor_model_parallel_size = 2;
  settings.parallel->pipeline_model_parallel_size = 2;
  const Rank rank =
      make_rank(Mesh(mesh_sizes(*settings.parallel), 4), 0, {.sequence_parallel = true});
  const auto volume_of = [&](const ActivationPlan& plan) {
    LayerTraces traces(find_model_family("gpt"));
    return activation_volume(settings, rank, {0, 1}, plan, 3, traces);
  };
  const CommunicationVolume volume = volume_of({});
  const double half = 10 * 64 * 2 / 2.0;
  EXPECT_EQ(volume.tensor, 3 * 2 * 2 * 5 * half);
  EXPECT_EQ(volume.pipeline, 3 * 2 * half);
  EXPECT_EQ(volume.total(), volume.tensor + volume.pipeline);
  const ActivationPlan full{.layers = std::vector<LayerPolicy>(2, {.full = true})};
  EXPECT_EQ(volume_of(full).tensor, volume.tensor + 3 * 2 * 3 * half)
      << "what the second forward pass exchanges, but for the sum at its end";
  const auto gathers_of = [&](ActivationPlan plan) {
    plan.distributes_saved_activations = true;
    return volume_of(plan).tensor - volume_of(full).tensor;
  };
  const ActivationPlan together{
      .layers = std::vector<LayerPolicy>(2, {.full = true, .joins_previous = true})};
  EXPECT_EQ(gathers_of(full), 3 * 2 * half / 2) << "the input of each layer";
  EXPECT_EQ(gathers_of(together), 3 * half / 2) << "the input of the first layer";
  settings.parallel->num_virtual_stages_per_pipeline_rank = 2;
  EXPECT_EQ(volume_of({}).pipeline, 2 * volume.pipeline) << "each chunk sends its rows";
}

// Of 16 ranks on 2 hosts of 8, 2 links of the ring connect hosts, and 8 of each rank's 15 peers are
// on the other host.
TEST(ShareBetweenHosts, OfRingsAndOfAllPairs) {
  RankList all(16);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_DOUBLE_EQ(share_between_hosts(all, 8, false), 2.0 / 16);
  EXPECT_DOUBLE_EQ(share_between_hosts(all, 8, true), 8.0 / 15);
  EXPECT_EQ(share_between_hosts(all, 16, false), 0);
  EXPECT_EQ(share_between_hosts(all, 1, false), 1);
  EXPECT_DOUBLE_EQ(share_between_hosts({0, 4, 8, 12}, 8, true), 2.0 / 3);
  EXPECT_EQ(share_between_hosts({0, 8}, 8, false), 1);
  EXPECT_EQ(share_between_hosts({3}, 8, true), 0);
}

}  // namespace
}  // namespace megatron
