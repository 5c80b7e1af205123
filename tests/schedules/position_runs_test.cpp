// Zigzag chunks and the pairs that attention connects, against a count of single positions.
#include "megatron/schedules/position_runs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace megatron {
namespace {

bool is_visible(std::int64_t query, std::int64_t key, const PositionMask& mask) {
  if (mask.causal && key > query) return false;
  if (mask.chunk > 0 && key / mask.chunk != query / mask.chunk) return false;
  if (mask.window[0] >= 0 && key < query - mask.window[0]) return false;
  return mask.window[1] < 0 || key <= query + mask.window[1];
}

TEST(PositionRuns, CountsVisiblePairs) {
  for (const bool causal : {true, false}) {
    for (const std::int64_t left : {-1, 0, 3, 9, 40}) {
      for (const std::int64_t right : {-1, 0, 2, 11, 15, 16}) {
        PositionMask mask{.causal = causal, .window = {left, right}};
        if (right > 11) mask = {.causal = causal, .window = {left, -1}, .chunk = right - 11};
        for (const PositionRun queries : {PositionRun{0, 7}, {5, 1}, {12, 9}}) {
          for (const PositionRun keys : {PositionRun{0, 5}, {4, 8}, {20, 3}, {13, 6}}) {
            std::int64_t pairs = 0;
            for (std::int64_t q = queries.first; q < queries.end(); ++q)
              for (std::int64_t k = keys.first; k < keys.end(); ++k)
                pairs += is_visible(q, k, mask) ? 1 : 0;
            EXPECT_EQ(visible_pairs(queries, keys, mask), static_cast<double>(pairs));
            EXPECT_EQ(sees(queries, keys, mask), pairs > 0)
                << causal << left << " " << right << ": " << queries.first << ", " << keys.first;
          }
        }
      }
    }
  }
}

TEST(PositionRuns, ZigzagPairsTheFirstChunkWithTheLast) {
  EXPECT_EQ(zigzag_runs(24, 3),
            (RunsOfRanks{{{0, 4}, {20, 4}}, {{4, 4}, {16, 4}}, {{8, 4}, {12, 4}}}));
  EXPECT_EQ(zigzag_runs(24, 1), (RunsOfRanks{{{0, 24}}}));
  EXPECT_EQ(join_neighbours(zigzag_runs(8, 4), 2),
            (RunsOfRanks{{{0, 1}, {7, 1}, {1, 1}, {6, 1}}, {{2, 1}, {5, 1}, {3, 1}, {4, 1}}}));
}

TEST(PositionRuns, ZigzagCutsAnyLength) {
  EXPECT_EQ(zigzag_runs(7, 2), (RunsOfRanks{{{0, 1}, {5, 2}}, {{1, 2}, {3, 2}}}));
  EXPECT_EQ(zigzag_runs(7, 2, 5), (RunsOfRanks{{{0, 2}, {5, 2}}, {{2, 1}, {3, 2}}}));
  for (const std::int64_t ranks : {2, 3}) {
    std::vector<std::int64_t> counts(static_cast<std::size_t>(ranks));
    for (std::int64_t first = 0; first < 2 * ranks; ++first) {
      const RunsOfRanks runs = zigzag_runs(1, ranks, first);
      for (std::size_t rank = 0; rank < runs.size(); ++rank)
        counts[rank] += runs[rank][0].count + runs[rank][1].count;
    }
    EXPECT_EQ(counts, std::vector<std::int64_t>(counts.size(), 2));
  }
}

}  // namespace
}  // namespace megatron
