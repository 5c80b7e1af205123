#include "megatron/planner/plan_layouts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/config/parallel_config.h"
#include "megatron/config/settings.h"
#include "megatron/config/training_config.h"
#include "megatron/config/transformer_config.h"
#include "support/gpt_traces.h"
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
  EXPECT_THAT(
      names(considered_sizes(
          settings,
          {.world_size = 4, .fixed = {"pipeline_model_parallel_size", "context_parallel_size"}})),
      testing::ElementsAre("tp1pp1ep1etp1", "tp1pp1ep2etp1", "tp2pp1ep1etp1", "tp2pp1ep1etp2",
                           "tp2pp1ep2etp1", "tp2pp1ep2etp2", "tp4pp1ep1etp1", "tp4pp1ep1etp2",
                           "tp4pp1ep1etp4", "tp4pp1ep2etp1", "tp4pp1ep2etp2", "tp4pp1ep2etp4"));
}

// 1, 2, 4 and 8 make 10 products of tp and cp that divide a host. 1024 and 96 have 11 and 12
// divisors.
TEST(ConsideredSizes, AreAsManyAsTheDivisorsOfTheRanks) {
  Settings settings = run_settings();
  settings.model->num_layers = 80;
  settings.model->num_attention_heads = 64;
  settings.training->seq_length = 8192;
  EXPECT_EQ(considered_sizes(settings, {.world_size = 1024}).size(), 10u * 11);
  EXPECT_EQ(considered_sizes(settings, {.world_size = 96}).size(), 10u * 12);
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

// No 3 ranks share 4 heads, 8 positions or 8 samples: only stages of 1, 2 and 1 layers are left.
TEST(SearchLayouts, FindsUnevenStages) {
  Settings settings = run_settings();
  settings.model->num_layers = 4;
  const auto found = search_layouts(settings, find_model_family("gpt"), {.world_size = 3});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].sizes.pp, 3);
  EXPECT_EQ(found[0].num_microbatches, 8);
}

TEST(ConsideredSizes, KeepTensorAndContextParallelismWithinAHost) {
  Settings settings = run_settings();
  LayoutRequest request{
      .world_size = 8, .gpus_per_host = 2, .fixed = {"pipeline_model_parallel_size"}};
  EXPECT_THAT(names(considered_sizes(settings, request)),
              testing::ElementsAre("tp1pp1ep1etp1", "tp1cp2pp1ep1etp1", "tp2pp1ep1etp2"));
  settings.parallel->tensor_model_parallel_size = 4;
  request.fixed.insert("tensor_model_parallel_size");
  EXPECT_THAT(names(considered_sizes(settings, request)), testing::ElementsAre("tp4pp1ep1etp4"))
      << "a size that is given stays";
  settings.parallel->context_parallel_size = 2;
  request.fixed.insert("context_parallel_size");
  EXPECT_THAT(names(considered_sizes(settings, request)), testing::ElementsAre("tp4cp2pp1ep1etp4"));
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
  const LayoutCandidate plain = evaluate_layout(settings, gpt_traces(), 4);
  EXPECT_EQ(plain.communication.tensor + plain.communication.pipeline + plain.communication.expert,
            0);
  EXPECT_EQ(plain.communication.data, 1.5 * plain.memory.gradients);
  settings.parallel->use_distributed_optimizer = true;
  const LayoutCandidate sharded = evaluate_layout(settings, gpt_traces(), 4);
  EXPECT_EQ(sharded.communication.data,
            0.75 * (sharded.memory.gradients + sharded.memory.parameters));
}

// Each stage has one layer and takes 4 microbatches of 8 tokens of 12 float32 numbers: 384 bytes.
// Attention and MLP all-reduce them in both passes over the 2 ranks of tp, 0 and 1, which sends
// 2·1/2 of them each time; a message goes to the other stage, rank 4, and one comes back. The
// all-reduce of gradients over the 2 ranks of dp, 0 and 2, sends 2·1/2 of them. One of 5 slots of a
// stage is idle.
TEST(EvaluateLayout, CountsWhatLeavesTheHost) {
  const Settings settings = settings_with(run_settings(), {.tp = 2, .pp = 2}, 8);
  for (const std::int64_t gpus_per_host : {1, 2, 4, 8}) {
    const LayoutCandidate layout = evaluate_layout(settings, gpt_traces(), 8, gpus_per_host);
    const double tensor = 4 * 2 * 2 * 384, pipeline = 4 * 2 * 384, data = layout.memory.gradients;
    EXPECT_EQ(layout.communication.between_hosts, (gpus_per_host < 2 ? tensor : 0) +
                                                      (gpus_per_host < 4 ? data : 0) +
                                                      (gpus_per_host < 8 ? pipeline : 0));
    EXPECT_EQ(layout.communication.total(), tensor + pipeline + data);
    EXPECT_DOUBLE_EQ(layout.bubble, 1.0 / 5);
  }
}

// As `plan --show-schedule` simulates: two ranks with two chunks each are idle in 1 of 9 slots.
TEST(EvaluateLayout, HasTheBubbleOfItsChunks) {
  Settings settings = run_settings();
  settings.model->num_layers = 4;
  settings.parallel->num_virtual_stages_per_pipeline_rank = 2;
  const Settings chosen = settings_with(settings, {.pp = 2}, 4);
  EXPECT_DOUBLE_EQ(evaluate_layout(chosen, gpt_traces(), 4).bubble, 1.0 / 9);
}

TEST(RankLayouts, PutsThoseThatFitFirstAndSaysWhy) {
  constexpr double kGibibyte = 1 << 30;
  const auto layout = [&](double memory, double between, double bubble, double inside,
                          std::int64_t cp = 1) {
    LayoutCandidate candidate;
    candidate.sizes.cp = cp;
    candidate.memory.parameters = memory * kGibibyte;
    candidate.communication.data = inside + between;
    candidate.communication.between_hosts = between;
    candidate.bubble = bubble;
    return candidate;
  };
  const std::vector<LayoutCandidate> layouts{layout(4, 1, 0, 1),       layout(1, 40, 0, 1),
                                             layout(1.5, 10, 0.2, 1),  layout(2, 39, 0.1, 9),
                                             layout(2.5, 10, 0, 1, 2), layout(3, 10, 0.1, 8)};
  const auto ranked = [&](std::int64_t seq_length) {
    std::vector<LayoutCandidate> sorted = layouts;
    EXPECT_EQ(rank_layouts(sorted, 3 * kGibibyte, seq_length), 5u);
    std::vector<std::pair<double, std::string>> memory;
    for (const LayoutCandidate& candidate : sorted)
      memory.emplace_back(candidate.memory.parameters / kGibibyte, candidate.why);
    return memory;
  };
  const auto row = [](double memory, const char* why) {
    return std::pair<double, std::string>(memory, why);
  };
  EXPECT_THAT(ranked(32768),
              testing::ElementsAre(row(3, "best of those that fit"), row(2, "more in-host"),
                                   row(1.5, "larger bubble"), row(1, "more off-host"),
                                   row(2.5, "short sequences need no cp"),
                                   row(4, "above the limit by 1 GiB")));
  EXPECT_THAT(ranked(32769),
              testing::ElementsAre(row(2.5, "best of those that fit"), row(3, "larger bubble"),
                                   row(2, "larger bubble"), row(1.5, "larger bubble"),
                                   row(1, "more off-host"), row(4, "above the limit by 1 GiB")));
  std::vector<LayoutCandidate> large{layout(1237, 1, 0, 1)};
  rank_layouts(large, 3 * kGibibyte, 32768);
  EXPECT_EQ(large[0].why, "above the limit by 1234 GiB");
}

Settings published(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn,
                   std::int64_t vocabulary) {
  Settings settings;
  settings.model->num_layers = layers;
  settings.model->hidden_size = hidden;
  settings.model->num_attention_heads = heads;
  settings.model->kv_channels = hidden / heads;
  settings.model->ffn_hidden_size = ffn;
  settings.model->vocab_size = vocabulary;
  settings.training->micro_batch_size = 1;
  settings.training->bf16 = true;
  settings.parallel->sequence_parallel = true;
  return settings;
}

/// The shapes of Llama 3 (arXiv 2407.21783, table 3).
Settings llama3(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t ffn) {
  Settings settings = published(layers, hidden, heads, ffn, 128256);
  make_llama(*settings.model);
  settings.model->num_query_groups = 8;
  settings.parallel->use_distributed_optimizer = true;
  return settings;
}

/// Returns the first layout over hosts of 8 GPUs with 80 GB.
LayoutCandidate first_choice(Settings settings, std::int64_t world_size, std::int64_t seq_length,
                             std::int64_t global_batch_size) {
  settings.training->seq_length = seq_length;
  settings.training->global_batch_size = global_batch_size;
  std::vector<LayoutCandidate> layouts =
      search_layouts(settings, find_model_family("gpt"), {.world_size = world_size});
  EXPECT_GT(rank_layouts(layouts, 72.0 * (1 << 30), seq_length), 0u);
  return layouts.front();
}

// The sizes that guides for Megatron name by the number of weights: 1 to 10 billion tp 1 or 2; 10
// to 100 billion tp 4 to 8 and pp 1 to 4; more tp 8 and pp 8 or more; over 32k tokens cp.
TEST(RankLayouts, FollowsPublishedGuides) {
  const Settings llama_8b = llama3(32, 4096, 32, 14336);
  const MeshSizes small = first_choice(llama_8b, 64, 8192, 512).sizes;
  EXPECT_LE(small.tp, 2);
  EXPECT_EQ(small.pp * small.cp, 1);
  for (const std::int64_t world_size : {64, 128}) {
    const MeshSizes medium =
        first_choice(llama3(80, 8192, 64, 28672), world_size, 4096, 4 * world_size).sizes;
    EXPECT_TRUE(medium.tp == 4 || medium.tp == 8) << medium.tp;
    EXPECT_LE(medium.pp, 4);
    EXPECT_EQ(medium.cp, 1);
  }
  // With 128 layers in place of 126, which stages can divide.
  const MeshSizes large = first_choice(llama3(128, 16384, 128, 53248), 1024, 8192, 2048).sizes;
  EXPECT_EQ(large.tp, 8);
  EXPECT_GE(large.pp, 8);
  // GPT-3, whose optimizer state was not sharded.
  const MeshSizes gpt3 =
      first_choice(published(96, 12288, 96, 49152, 51200), 512, 2048, 1536).sizes;
  EXPECT_EQ(gpt3.tp, 8);
  EXPECT_GE(gpt3.pp, 8);
  EXPECT_GT(first_choice(llama_8b, 64, 65536, 64).sizes.cp, 1);
}

}  // namespace
}  // namespace megatron
