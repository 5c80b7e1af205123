#include <gtest/gtest.h>

#include "megatron/config/mesh_sizes.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/planner/plan_layouts.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

Settings run_settings(std::int64_t num_experts = 0) {
  Settings settings;
  settings.model = tiny_gpt();
  settings.model->hidden_size = 256;  // so that paddings are small
  settings.model->ffn_hidden_size = 1024;
  settings.model->kv_channels = 256 / settings.model->num_attention_heads;
  settings.model->moe.num_experts = num_experts;
  settings.training->micro_batch_size = 1;
  settings.training->global_batch_size = 8;
  settings.training->seq_length = 8;
  return settings;
}

/// Returns the bytes of weights and of states that all ranks write.
CheckpointShare total(const Settings& run, const MeshSizes& sizes, std::int64_t world_size) {
  const Settings settings = settings_with(run, sizes, world_size);
  check_layout(settings, world_size).throw_if_any();
  CheckpointShare sum;
  for (const CheckpointShare& share :
       checkpoint_shares(settings, find_model_family("gpt"), world_size)) {
    const std::int64_t ranks = world_size / sizes.pp;
    sum.weights += share.weights * static_cast<double>(ranks);
    sum.optimizer += share.optimizer * static_cast<double>(ranks);
  }
  return sum;
}

TEST(CheckpointShares, AddUpToTheSameInEveryLayout) {
  for (const std::int64_t experts : {0, 4}) {
    Settings run = run_settings(experts);
    run.model->untie_embeddings_and_output_weights = true;
    const CheckpointShare one = total(run, {}, 1);
    EXPECT_GT(one.weights, 0);
    EXPECT_EQ(one.optimizer, 2 * one.weights) << "two states in float32, as the weights";
    run.parallel->use_distributed_optimizer = true;
    MeshSizes sizes{.pp = 2};
    if (experts > 0) sizes.ep = 2;
    const CheckpointShare eight = total(run, sizes, 8);
    EXPECT_NEAR(eight.weights, one.weights, 1e-9 * one.weights);
    EXPECT_NEAR(eight.optimizer, one.optimizer, 0.01 * one.optimizer);
    run.parallel->data_parallel_sharding_strategy = "optim_grads_params";
    EXPECT_NEAR(total(run, sizes, 8).weights, one.weights, 1e-9 * one.weights);
  }
}

}  // namespace
}  // namespace megatron
