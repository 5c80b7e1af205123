// Compares balanced_stages() with a search over all possible divisions.
#include "megatron/config/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using ::testing::ElementsAre;
using Counts = std::vector<std::int64_t>;

Counts counts(const std::vector<StageLayers>& stages) {
  Counts all;
  for (const StageLayers& stage : stages) all.push_back(stage.num_layers);
  return all;
}

struct Pipeline {
  LayerCosts costs;
  std::int64_t p = 1, v = 1;
  ChunkOrder order = ChunkOrder::loop;
};

/// Returns the cost of the most expensive rank and of the most expensive stage.
std::pair<double, double> judged(const Counts& counts, const Pipeline& pipeline) {
  std::vector<double> ranks(static_cast<std::size_t>(pipeline.p));
  double stage_s = 0;
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    double seconds = static_cast<double>(counts[stage]) * pipeline.costs.layer_s;
    if (stage == 0) seconds += pipeline.costs.embedding_s;
    if (stage + 1 == counts.size()) seconds += pipeline.costs.output_s;
    stage_s = std::max(stage_s, seconds);
    ranks[static_cast<std::size_t>(
        rank_of(pipeline.order, pipeline.p, static_cast<std::int64_t>(stage)))] += seconds;
  }
  return {*std::ranges::max_element(ranks), stage_s};
}

std::pair<double, double> best_of_all(Counts& counts, std::size_t stage, std::int64_t left,
                                      const Pipeline& pipeline) {
  if (stage + 1 == counts.size()) {
    counts[stage] = left;
    return judged(counts, pipeline);
  }
  std::pair<double, double> best{std::numeric_limits<double>::infinity(), 0};
  for (std::int64_t count = stage == 0 ? 0 : 1; count <= left; ++count) {
    counts[stage] = count;
    best = std::min(best, best_of_all(counts, stage + 1, left - count, pipeline));
  }
  return best;
}

TEST(Balance, IsTheBestOfAllCuts) {
  std::mt19937 random(3);
  const auto cost = [&] {
    return static_cast<double>(random() % 25) / 4;
  };  // exact in binary: sums in any order are equal
  for (int i = 0; i < 600; ++i) {
    Pipeline pipeline{
        .costs = {.embedding_s = cost(), .layer_s = 0.25 + cost(), .output_s = cost()},
        .p = 1 + static_cast<std::int64_t>(random() % 3),
        .v = 1 + static_cast<std::int64_t>(random() % 2)};
    if (pipeline.v == 2 && random() % 2 == 0) pipeline.order = ChunkOrder::v;
    const std::int64_t num_stages = pipeline.p * pipeline.v;
    const std::int64_t num_layers =
        std::max<std::int64_t>(1, num_stages - 2) + static_cast<std::int64_t>(random() % 7);
    const std::vector<StageLayers> stages =
        balanced_stages(num_layers, pipeline.costs, pipeline.p, pipeline.v, pipeline.order);
    std::int64_t next = 0;
    for (const StageLayers& stage : stages) {
      EXPECT_EQ(stage.first_layer, next);
      next += stage.num_layers;
    }
    EXPECT_EQ(next, num_layers);
    Counts scratch(static_cast<std::size_t>(num_stages));
    EXPECT_EQ(judged(counts(stages), pipeline), best_of_all(scratch, 0, num_layers, pipeline))
        << num_layers << " layers, p " << pipeline.p << ", v " << pipeline.v << ", costs "
        << pipeline.costs.embedding_s << " " << pipeline.costs.layer_s << " "
        << pipeline.costs.output_s;
  }
}

TEST(Balance, LayersAloneAreSpreadEvenly) {
  EXPECT_THAT(counts(balanced_stages(10, {}, 4, 1, ChunkOrder::loop)), ElementsAre(2, 3, 3, 2));
  EXPECT_THAT(counts(balanced_stages(6, {}, 2, 2, ChunkOrder::loop)), ElementsAre(1, 2, 2, 1));
}

TEST(Balance, AnOutputThatCostsMuchStandsAlone) {
  EXPECT_THAT(counts(balanced_stages(12, {.embedding_s = 0, .layer_s = 1, .output_s = 6}, 4, 1,
                                     ChunkOrder::loop)),
              ElementsAre(4, 4, 4, 0));
  EXPECT_THAT(counts(balanced_stages(4, {.embedding_s = 9, .layer_s = 1, .output_s = 9}, 4, 1,
                                     ChunkOrder::loop)),
              ElementsAre(0, 2, 2, 0));
}

TEST(Balance, CostsMustBeNumbers) {
  EXPECT_THROW(balanced_stages(4, {.layer_s = 0}, 2, 1, ChunkOrder::loop), InternalError);
  EXPECT_THROW(balanced_stages(4, {.output_s = std::numeric_limits<double>::quiet_NaN()}, 2, 1,
                               ChunkOrder::loop),
               InternalError);
  EXPECT_THROW(balanced_stages(1, {}, 4, 1, ChunkOrder::loop), InternalError);
}

/// No search could judge so many stages: the most expensive rank is within a layer of the mean.
TEST(Balance, LargeModels) {
  const Pipeline pipeline{
      .costs = {.embedding_s = 0.3, .layer_s = 1.1, .output_s = 4.7}, .p = 16, .v = 4};
  const Counts layers = counts(balanced_stages(1000, pipeline.costs, 16, 4, ChunkOrder::loop));
  EXPECT_EQ(layers.size(), 64u);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), std::int64_t{0}), 1000);
  EXPECT_LT(judged(layers, pipeline).first, (0.3 + 4.7 + 1000 * 1.1) / 16 + 1.1);
}

}  // namespace
}  // namespace megatron
