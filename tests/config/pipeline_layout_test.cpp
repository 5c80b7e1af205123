// Tests pipeline layouts: equal to Megatron's where Megatron accepts the flags, otherwise with the
// remaining layers in the middle, and without losing a layer.
#include "megatron/config/pipeline_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "megatron/base/error.h"
#include "megatron/config/balance.h"
#include "megatron/config/parallel_config.h"
#include "support/message_of.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Counts = std::vector<std::int64_t>;

ParallelConfig ranks(std::int64_t p) {
  ParallelConfig parallel;
  parallel.pipeline_model_parallel_size = p;
  return parallel;
}

ParallelConfig chunks(std::int64_t p, std::int64_t v, const char* schedule = "") {
  ParallelConfig parallel = ranks(p);
  if (v > 1) parallel.num_virtual_stages_per_pipeline_rank = v;
  parallel.pipeline_schedule = schedule;
  return parallel;
}

Counts counts(const PipelineLayout& layout) {
  Counts all;
  for (const StageLayers& stage : layout.stages) all.push_back(stage.num_layers);
  return all;
}

Counts counts(const ParallelConfig& parallel, std::int64_t num_layers) {
  return counts(pipeline_layout(parallel, num_layers));
}

std::string mistake(const ParallelConfig& parallel, std::int64_t num_layers) {
  return message_of([&] { pipeline_layout(parallel, num_layers); });
}

void expect_whole(const PipelineLayout& layout, std::int64_t num_layers) {
  ASSERT_EQ(layout.stages.size(), static_cast<std::size_t>(layout.num_ranks * layout.num_chunks));
  std::int64_t next = 0, embeddings = 0, outputs = 0;
  for (const StageLayers& stage : layout.stages) {
    EXPECT_EQ(stage.first_layer, next);
    next += stage.num_layers;
    embeddings += stage.has_embedding, outputs += stage.has_output;
  }
  EXPECT_EQ(next, num_layers);
  EXPECT_EQ(embeddings, 1);
  EXPECT_EQ(outputs, 1);
}

TEST(PipelineLayout, OddLayersStandInTheMiddle) {
  EXPECT_THAT(counts(ranks(4), 8), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(counts(ranks(4), 9), ElementsAre(2, 3, 2, 2));
  EXPECT_THAT(counts(ranks(4), 10), ElementsAre(2, 3, 3, 2));
  EXPECT_THAT(counts(ranks(4), 11), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(counts(chunks(2, 2), 6), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(counts(chunks(4, 2, "zb-v"), 10), ElementsAre(1, 1, 2, 2, 1, 1, 1, 1));
  EXPECT_THAT(counts(chunks(4, 2, "zb-v"), 14), ElementsAre(1, 2, 2, 2, 2, 2, 2, 1));
}

TEST(PipelineLayout, NoLayerIsLostAndRanksDifferByLittle) {
  for (std::int64_t p = 1; p <= 9; ++p) {
    for (std::int64_t v = 1; v <= 4; ++v) {
      for (std::int64_t num_layers = p * v; num_layers < p * v + 40; ++num_layers) {
        for (const char* schedule : {"", "dualpipe-v"}) {
          if (*schedule != '\0' && v != 2) continue;
          const PipelineLayout layout = pipeline_layout(chunks(p, v, schedule), num_layers);
          expect_whole(layout, num_layers);
          const Counts all = counts(layout);
          EXPECT_LE(*std::ranges::max_element(all) - *std::ranges::min_element(all), 1);
          Counts of_ranks(static_cast<std::size_t>(p));
          for (std::int64_t rank = 0; rank < p; ++rank) {
            for (std::int64_t chunk = 0; chunk < v; ++chunk)
              of_ranks[static_cast<std::size_t>(rank)] += layout.of(rank, chunk).num_layers;
          }
          const std::int64_t spread =
              *std::ranges::max_element(of_ranks) - *std::ranges::min_element(of_ranks);
          EXPECT_LE(spread, layout.order == ChunkOrder::v ? 2 : 1)
              << num_layers << " over " << p << " x " << v;
        }
      }
    }
  }
}

// Random flags are refused, or every layer is assigned and the end ranks have the given layers.
TEST(PipelineLayout, NoFlagsLoseALayer) {
  std::mt19937 random(17);
  const auto below = [&](std::int64_t bound) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(bound));
  };
  int accepted = 0;
  for (int i = 0; i < 20'000; ++i) {
    ParallelConfig parallel = chunks(1 + below(6), 1 + below(3));
    if (below(4) == 0)
      parallel.pipeline_schedule = "zb-v", parallel.num_virtual_stages_per_pipeline_rank.reset();
    if (below(2) == 0) parallel.decoder_first_pipeline_num_layers = 1 + below(8);
    if (below(2) == 0) parallel.decoder_last_pipeline_num_layers = 1 + below(8);
    const bool has_ends =
        parallel.decoder_first_pipeline_num_layers || parallel.decoder_last_pipeline_num_layers;
    if (!has_ends)
      parallel.account_for_embedding_in_pipeline_split = below(2) == 0,
      parallel.account_for_loss_in_pipeline_split = below(2) == 0;
    const std::int64_t num_layers = 1 + below(40);
    if (mistake(parallel, num_layers) != "no error") continue;
    ++accepted;
    const PipelineLayout layout = pipeline_layout(parallel, num_layers);
    expect_whole(layout, num_layers);
    const auto of_rank = [&](std::int64_t rank) {
      std::int64_t sum = 0;
      for (std::int64_t chunk = 0; chunk < layout.num_chunks; ++chunk)
        sum += layout.of(rank, chunk).num_layers;
      return sum;
    };
    if (layout.num_ranks == 1) continue;
    EXPECT_EQ(of_rank(0), parallel.decoder_first_pipeline_num_layers.value_or(of_rank(0)));
    EXPECT_EQ(of_rank(layout.num_ranks - 1),
              parallel.decoder_last_pipeline_num_layers.value_or(of_rank(layout.num_ranks - 1)));
  }
  EXPECT_GT(accepted, 4'000);
}

TEST(PipelineLayout, ChunksOfARank) {
  const PipelineLayout loop = pipeline_layout(chunks(2, 2), 8);
  EXPECT_EQ(loop.of(0, 1), (StageLayers{.first_layer = 4, .num_layers = 2}));
  EXPECT_EQ(loop.of(1, 1), (StageLayers{.first_layer = 6, .num_layers = 2, .has_output = true}));
  ParallelConfig zb_v = ranks(2);
  zb_v.pipeline_schedule = "zb-v";
  const PipelineLayout v = pipeline_layout(zb_v, 8);
  EXPECT_EQ(v.num_chunks, 2);
  EXPECT_EQ(v.of(0, 0), (StageLayers{.first_layer = 0, .num_layers = 2, .has_embedding = true}));
  EXPECT_EQ(v.of(0, 1), (StageLayers{.first_layer = 6, .num_layers = 2, .has_output = true}));
  EXPECT_EQ(pipeline_layout(ranks(1), 3), single_stage_layout(3));
}

TEST(PipelineLayout, LayersPerVirtualStage) {
  ParallelConfig parallel = ranks(2);
  parallel.num_layers_per_virtual_pipeline_stage = 2;
  EXPECT_EQ(num_pipeline_chunks(parallel, 8), 2);
  EXPECT_EQ(num_pipeline_chunks(parallel, 4), 1);
  EXPECT_EQ(schedule_name(parallel, 8), "interleaved");
  EXPECT_EQ(schedule_name(parallel, 4), "1f1b");
  EXPECT_THAT(counts(parallel, 10), ElementsAre(1, 2, 2, 2, 2, 1));  // at most two per rank
  EXPECT_THAT(mistake(parallel, 2),
              HasSubstr("--num-layers-per-virtual-pipeline-stage: 2 is more than the 1 layer of a "
                        "rank (2 layers, "
                        "--pipeline-model-parallel-size 2)\n  fix: use at most 1"));
}

TEST(PipelineLayout, EndsOfTheModel) {
  ParallelConfig parallel = ranks(4);
  parallel.decoder_first_pipeline_num_layers = 3;
  EXPECT_THAT(counts(parallel, 12), ElementsAre(3, 3, 3, 3));
  EXPECT_THAT(counts(parallel, 13), ElementsAre(3, 3, 4, 3));
  parallel.decoder_last_pipeline_num_layers = 2;
  EXPECT_THAT(counts(parallel, 13), ElementsAre(3, 4, 4, 2));
  parallel.num_virtual_stages_per_pipeline_rank = 2;
  parallel.decoder_first_pipeline_num_layers = 2;
  EXPECT_THAT(counts(parallel, 12), ElementsAre(1, 2, 2, 1, 1, 2, 2, 1));
  ParallelConfig two = ranks(2);
  two.decoder_first_pipeline_num_layers = 3, two.decoder_last_pipeline_num_layers = 4;
  EXPECT_THAT(counts(two, 7), ElementsAre(3, 4));
  EXPECT_THAT(mistake(two, 8),
              HasSubstr("--decoder-first-pipeline-num-layers 3 and "
                        "--decoder-last-pipeline-num-layers 4: leaves 1 of --num-layers 8 "
                        "without a rank"));
  EXPECT_THAT(mistake(two, 6), HasSubstr("is more than --num-layers 6"));
}

TEST(PipelineLayout, EmbeddingAndLossCountAsLayers) {
  ParallelConfig parallel = ranks(4);
  parallel.account_for_embedding_in_pipeline_split = true;
  EXPECT_THAT(counts(parallel, 7), ElementsAre(1, 2, 2, 2));
  EXPECT_THAT(counts(parallel, 3), ElementsAre(0, 1, 1, 1));
  parallel.account_for_loss_in_pipeline_split = true;
  EXPECT_THAT(counts(parallel, 6), ElementsAre(1, 2, 2, 1));
  EXPECT_THAT(counts(parallel, 2), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(counts(parallel, 7), ElementsAre(1, 3, 2, 1));
}

TEST(PipelineLayout, LayersThatDoNotFit) {
  EXPECT_THAT(
      mistake(ranks(4), 3),
      HasSubstr(
          "--num-layers: 3 in --pipeline-model-parallel-size 4 leaves 1 stage without a layer"));
  EXPECT_THAT(mistake(chunks(1'000'000'000, 1'000'000'000), 3),
              HasSubstr("leaves 999999999999999997 stages without a layer"));
  EXPECT_THAT(mistake(chunks(4, 2), 5),
              HasSubstr("--num-layers: 5 in 8 stages (--pipeline-model-parallel-size 4 x 2 chunks) "
                        "leaves 3 stages without a layer"));
  ParallelConfig ends = chunks(2, 2);
  ends.decoder_first_pipeline_num_layers = 1;
  EXPECT_THAT(
      mistake(ends, 4),
      HasSubstr("with --decoder-first-pipeline-num-layers 1 leaves 1 stage without a layer"));
}

TEST(PipelineLayout, SchedulesAskForChunks) {
  EXPECT_THAT(
      mistake(chunks(2, 2, "1f1b"), 8),
      HasSubstr(
          "--pipeline-schedule 1f1b: works with one chunk per rank, and the flags make 2 chunks"));
  EXPECT_THAT(
      mistake(chunks(2, 3, "zb-v"), 8),
      HasSubstr(
          "--pipeline-schedule zb-v: works with 2 chunks per rank, and the flags make 3 chunks"));
  EXPECT_THAT(mistake(chunks(2, 1, "interleaved"), 8),
              HasSubstr("--pipeline-schedule interleaved: needs several chunks per rank"));
  for (const char* schedule : {"combined-1f1b", "auto", "interleaved"})
    EXPECT_EQ(mistake(chunks(2, 2, schedule), 8), "no error");
  for (const char* schedule : {"combined-1f1b", "auto", "gpipe", "zb-h1", "zb-h2"})
    EXPECT_EQ(mistake(chunks(2, 1, schedule), 8), "no error");
}

TEST(PipelineLayout, AStringSaysItAll) {
  ParallelConfig parallel = ranks(2);
  parallel.pipeline_model_parallel_layout = "E|t*2|(t|)*2L";
  EXPECT_THAT(mistake(parallel, 4),
              HasSubstr("has 5 stages, no multiple of --pipeline-model-parallel-size 2"));
  parallel.pipeline_model_parallel_layout = "E|t*2|(t|)*2|L";
  const PipelineLayout layout = pipeline_layout(parallel, 4);
  expect_whole(layout, 4);
  EXPECT_THAT(counts(layout), ElementsAre(0, 2, 1, 1, 0, 0));
  EXPECT_EQ(layout.num_chunks, 3);
  EXPECT_EQ(schedule_name(parallel, 4), "interleaved");
  EXPECT_THAT(mistake(parallel, 5), HasSubstr("names 4 layers (t), --num-layers is 5"));
}

TEST(PipelineLayout, MeasuredCostsDecide) {
  ParallelConfig parallel = ranks(2);
  parallel.pipeline_split = "measured";
  EXPECT_THROW(pipeline_layout(parallel, 8), InternalError);
  const LayerCosts costs{.embedding_s = 0, .layer_s = 1, .output_s = 4};
  EXPECT_THAT(counts(pipeline_layout(parallel, 8, &costs)), ElementsAre(6, 2));
}

}  // namespace
}  // namespace megatron
