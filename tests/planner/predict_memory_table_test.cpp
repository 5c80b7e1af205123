#include "megatron/planner/predict_memory_table.h"

#include <gtest/gtest.h>

#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "megatron/parallel/make_rank.h"
#include "megatron/parallel/rank.h"
#include "support/gpt_traces.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

constexpr double kSlots = 4 * 512 * 1024;  ///< of a rank in shared memory

Settings run_settings() {
  Settings settings;
  settings.model = tiny_gpt();
  settings.training->micro_batch_size = 2;
  settings.training->global_batch_size = 8;
  settings.training->seq_length = 8;
  return settings;
}

double communication_of(const Settings& settings, std::int64_t world_size, std::int64_t rank = 0,
                        const std::vector<std::vector<std::int64_t>>& sharing_stages = {}) {
  return communication_bytes(
      settings, make_rank(Mesh(mesh_sizes(*settings.parallel), world_size), rank), sharing_stages);
}

TEST(PredictedMemoryTable, AddsUpAndListsTheLayers) {
  const Settings settings = run_settings();
  const PipelineLayout layout = pipeline_layout(*settings.parallel, settings.model->num_layers);
  const Rank rank = make_rank(Mesh(mesh_sizes(*settings.parallel), 1), 0);
  const HostBaseline baseline{.libraries = 100, .allocator_slack = 20, .host = 3, .num_threads = 1};
  const MemoryTable table = predict_memory_table(settings, gpt_traces(), rank, layout, 4, baseline);
  EXPECT_EQ(table.unexplained(), 0);
  EXPECT_EQ(table.libraries, 100);
  EXPECT_EQ(table.communication, 0);
  double units = 0;
  for (const UnitActivations& unit : table.units) units += unit.bytes;
  EXPECT_EQ(units, table.activations);
  ASSERT_EQ(table.units.size(), 4U);
  EXPECT_EQ(table.units[0].name, "embedding");
  EXPECT_EQ(table.units[1].name, "layer 0");
  EXPECT_EQ(table.units[3].name, "final layernorm");
  const RankMemory memory = predict_rank_memory(settings, gpt_traces(), rank, layout, 4);
  EXPECT_EQ(table.model() + table.activations + table.temporary, memory.total());
}

TEST(CommunicationBytes, AreTheSlotsOfEachGroup) {
  Settings settings = run_settings();
  EXPECT_EQ(communication_of(settings, 1), 0);
  EXPECT_EQ(communication_of(settings, 4), 4 * kSlots) << "gradients of 4 data-parallel ranks";
  settings.model->hidden_size = 1 << 16;  // a tensor of more than a slot
  settings.parallel->tensor_model_parallel_size = 2;
  EXPECT_EQ(communication_of(settings, 2), 2 * kSlots);
  EXPECT_EQ(communication_of(settings, 4), 2 * kSlots + 2 * kSlots);
  settings.parallel->device = "cuda";
  EXPECT_EQ(communication_of(settings, 4), 0);
}

TEST(CommunicationBytes, OfAPipelineAreItsRings) {
  Settings settings = run_settings();
  settings.model->hidden_size = 1 << 16;
  settings.parallel->pipeline_model_parallel_size = 4;
  constexpr double kRing = 4 * 128 * 1024;
  EXPECT_EQ(communication_of(settings, 4, 0), 2 * kRing) << "to the second stage and back";
  EXPECT_EQ(communication_of(settings, 4, 1), 4 * kRing) << "two neighbours";
  EXPECT_EQ(communication_of(settings, 4, 0, {{0, 3}, {0, 3}}), 2 * kRing + 2 * kSlots)
      << "the first and the last stage add up the gradient of the embedding";
}

}  // namespace
}  // namespace megatron
