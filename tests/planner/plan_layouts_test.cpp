#include "megatron/planner/plan_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "support/message_of.h"
#include "support/tiny_gpt.h"

namespace megatron {
namespace {

using testing::HasSubstr;

Settings run_settings() {
  Settings settings;
  settings.model = tiny_gpt();
  settings.training->micro_batch_size = 1;
  settings.training->global_batch_size = 8;
  settings.training->seq_length = 8;
  return settings;
}

std::vector<std::string> names(const std::vector<MeshSizes>& all) {
  std::vector<std::string> texts;
  for (const MeshSizes& sizes : all)
    texts.push_back("tp" + std::to_string(sizes.tp) +
                    (sizes.cp > 1 ? "cp" + std::to_string(sizes.cp) : "") + "pp" +
                    std::to_string(sizes.pp) + "ep" + std::to_string(sizes.ep) + "etp" +
                    std::to_string(sizes.expert_tp()));
  return texts;
}

TEST(ConsideredSizes, OfADenseModelHaveNoExperts) {
  EXPECT_THAT(names(considered_sizes(run_settings(), {.world_size = 2})),
              testing::ElementsAre("tp1pp1ep1etp1", "tp1pp2ep1etp1", "tp1cp2pp1ep1etp1",
                                   "tp1cp2pp2ep1etp1", "tp2pp1ep1etp2", "tp2pp2ep1etp2",
                                   "tp2cp2pp1ep1etp2", "tp2cp2pp2ep1etp2"));
}

TEST(ConsideredSizes, OfExpertsVaryTheirOwnSizes) {
  Settings settings = run_settings();
  settings.model->moe.num_experts = 6;
  settings.parallel->pipeline_model_parallel_size = 1;
  EXPECT_THAT(names(considered_sizes(
                  settings, {.world_size = 3,
                             .fixed = {"pipeline_model_parallel_size", "context_parallel_size"}})),
              testing::ElementsAre("tp1pp1ep1etp1", "tp1pp1ep2etp1", "tp1pp1ep3etp1",
                                   "tp2pp1ep1etp1", "tp2pp1ep1etp2", "tp2pp1ep2etp1",
                                   "tp2pp1ep2etp2", "tp2pp1ep3etp1", "tp2pp1ep3etp2"));
}

TEST(SearchLayouts, FindsTheValidOnesLeastMemoryFirst) {
  const std::vector<LayoutCandidate> found =
      search_layouts(run_settings(), find_model_family("gpt"), {.world_size = 4});
  std::vector<std::string> sizes;
  for (const LayoutCandidate& layout : found)
    sizes.push_back("tp" + std::to_string(layout.sizes.tp) + "cp" +
                    std::to_string(layout.sizes.cp) + "pp" + std::to_string(layout.sizes.pp) +
                    "dp" + std::to_string(layout.data_parallel));
  EXPECT_THAT(sizes, testing::UnorderedElementsAre("tp1cp1pp1dp4", "tp1cp1pp2dp2", "tp2cp1pp1dp2",
                                                   "tp2cp1pp2dp1", "tp4cp1pp1dp1", "tp1cp2pp1dp2",
                                                   "tp1cp2pp2dp1", "tp2cp2pp1dp1", "tp1cp4pp1dp1"));
  EXPECT_TRUE(std::ranges::is_sorted(
      found, {}, [](const LayoutCandidate& layout) { return layout.memory.total(); }));
  for (const LayoutCandidate& layout : found)
    EXPECT_EQ(layout.num_microbatches, 8 / layout.data_parallel);
}

// A sequence of 12 over 8 ranks: 2, 3 and 6 ranks can hold two equal chunks each.
TEST(ConsideredSizes, OfContextParallelismDivideTheSequence) {
  Settings settings = run_settings();
  settings.training->seq_length = 12;
  const LayoutRequest request{
      .world_size = 8, .fixed = {"tensor_model_parallel_size", "pipeline_model_parallel_size"}};
  EXPECT_THAT(names(considered_sizes(settings, request)),
              testing::ElementsAre("tp1pp1ep1etp1", "tp1cp2pp1ep1etp1", "tp1cp3pp1ep1etp1",
                                   "tp1cp6pp1ep1etp1"));
}

// A sequence so long that its activations outweigh everything else: the more ranks share it, the
// less memory each needs.
TEST(SearchLayouts, FindsThatLongSequencesNeedContextParallelism) {
  Settings settings = run_settings();
  settings.training->seq_length = settings.model->max_position_embeddings = 1 << 20;
  const LayoutRequest request{
      .world_size = 8, .fixed = {"tensor_model_parallel_size", "pipeline_model_parallel_size"}};
  const auto found = search_layouts(settings, find_model_family("gpt"), request);
  std::vector<std::int64_t> sizes;
  for (const LayoutCandidate& layout : found) sizes.push_back(layout.sizes.cp);
  EXPECT_THAT(sizes, testing::ElementsAre(8, 4, 2, 1));
  EXPECT_NEAR(found[3].memory.activations / found[0].memory.activations, 8, 1e-9);
  EXPECT_EQ(found[3].communication.context, 0);
}

TEST(SearchLayouts, ReportsGivenSizesThatFitNoLayout) {
  Settings settings = run_settings();
  settings.parallel->tensor_model_parallel_size = 3;
  const LayoutRequest request{.world_size = 3, .fixed = {"tensor_model_parallel_size"}};
  EXPECT_THAT(message_of([&] { search_layouts(settings, find_model_family("gpt"), request); }),
              HasSubstr("--num-attention-heads"));
}

// All-reduces of gradients over the 4 ranks of dp send 2·3/4 of them.
TEST(EvaluateLayout, CountsWhatDataParallelRanksSend) {
  Settings settings = settings_with(run_settings(), {}, 4);
  const LayoutCandidate plain = evaluate_layout(settings, find_model_family("gpt"), 4);
  EXPECT_EQ(plain.communication.tensor + plain.communication.pipeline + plain.communication.expert,
            0);
  EXPECT_EQ(plain.communication.data, 1.5 * plain.memory.gradients);
  settings.parallel->use_distributed_optimizer = true;
  const LayoutCandidate sharded = evaluate_layout(settings, find_model_family("gpt"), 4);
  EXPECT_EQ(sharded.communication.data,
            0.75 * (sharded.memory.gradients + sharded.memory.parameters));
}

TEST(RankLayouts, PutsThoseThatFitFirst) {
  const auto layout = [](double bytes, double sent) {
    LayoutCandidate candidate;
    candidate.memory.parameters = bytes;
    candidate.communication.data = sent;
    return candidate;
  };
  std::vector<LayoutCandidate> layouts{layout(1, 30), layout(2, 10), layout(3, 20), layout(4, 0)};
  EXPECT_EQ(rank_layouts(layouts, 3), 3u);
  std::vector<double> bytes;
  for (const LayoutCandidate& candidate : layouts) bytes.push_back(candidate.memory.parameters);
  EXPECT_THAT(bytes, testing::ElementsAre(2, 3, 1, 4));
}

}  // namespace
}  // namespace megatron
