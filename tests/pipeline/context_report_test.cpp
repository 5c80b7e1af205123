// The comparison of measured and simulated waits of context parallelism, and its tracks, on records
// made by hand.
#include "megatron/pipeline/trace/context_report.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/config/cp_comm_type.h"

namespace megatron {
namespace {

/// Two ranks, 8 positions, one head of one channel in float32: keys and values of a rank are 32
/// bytes.
std::vector<ContextLayers> ring_of_two() {
  return {{.comm_type = CpCommType::p2p,
           .layers = {0},
           .attention = {.exchange = {.ranks = 2}, .mask = {}, .length = 8, .element_bytes = 4}}};
}

/// A message takes 4 s: rank 0 computes 3 s and 2 s, rank 1 5 s and 2 s.
std::vector<RankTrace> traced_ring() {
  std::vector<RankTrace> ranks;
  for (const std::int64_t r : {0, 1}) {
    RankTrace rank{.rank = r,
                   .cp = r,
                   .clock = {},
                   .cp_link = {.latency_s = 2, .bytes_per_s = 16},
                   .iterations = {}};
    const double first_s = r == 0 ? 3 : 5, wait_s = r == 0 ? 1 : 0.5, begin_s = 100;
    TracedIteration iteration{.iteration = 2, .num_microbatches = 1, .steps = {}, .phases = {}};
    iteration.activities.ring_steps = {
        {"cp", false, 0, r, 2, begin_s, begin_s + first_s},
        {"cp", false, 1, 1 - r, 1, begin_s + first_s + wait_s, begin_s + first_s + wait_s + 2}};
    iteration.activities.waits = {
        {"cp", "recv", "keys and values", 1 - r, begin_s + first_s, begin_s + first_s + wait_s},
        {"dp-cp", "all_reduce", "gradients", 0, begin_s + 50, begin_s + 60},
        {"pp", "recv", "hidden", 0, begin_s + 60, begin_s + 70}};
    rank.iterations = {iteration};
    ranks.push_back(std::move(rank));
  }
  return ranks;
}

/// In the simulation the message ends at 4 s: rank 0 waits for 1 s, rank 1 has computed until then.
TEST(ContextReport, ComparesWaitsWithTheSimulation) {
  const ContextReport report = context_report(traced_ring(), ring_of_two());
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_DOUBLE_EQ(report.message_bytes, 32);
  EXPECT_DOUBLE_EQ(report.ranks[0].attention_s, 5);
  EXPECT_DOUBLE_EQ(report.ranks[1].attention_s, 7);
  EXPECT_DOUBLE_EQ(report.ranks[0].exposed_s, 1);
  EXPECT_DOUBLE_EQ(report.ranks[1].exposed_s, 0.5);
  EXPECT_DOUBLE_EQ(report.ranks[0].simulated_exposed_s, 1);
  EXPECT_DOUBLE_EQ(report.ranks[1].simulated_exposed_s, 0);
}

/// Exchanges of heads are exposed as a whole: each takes the latency and its bytes.
TEST(ContextReport, CountsCollectives) {
  std::vector<ContextLayers> layers = ring_of_two();
  layers[0].comm_type = CpCommType::a2a;
  layers[0].attention.exchange.head_ranks = 2;
  layers[0].attention.heads = layers[0].attention.groups = 2;
  std::vector<RankTrace> ranks = traced_ring();
  for (RankTrace& rank : ranks)
    rank.iterations[0].activities = {
        .waits = {{"cp", "all_to_all", "queries", 0, 1, 7}, {"cp", "barrier", "clocks", 0, 7, 9}}};
  const ContextReport report = context_report(ranks, layers);
  EXPECT_DOUBLE_EQ(report.ranks[0].exposed_s, 6);
  // 4 rows of 2 heads in float32, of which the other rank gets half: 16 bytes.
  EXPECT_DOUBLE_EQ(report.ranks[0].simulated_exposed_s, 2 + 16.0 / 16);
}

/// The steps and waits lie in the span of their pass, and other waits on a track of their own.
TEST(ContextReport, DrawsStepsUnderAttention) {
  const std::vector<TraceTrack> tracks = activity_tracks(traced_ring()[0], 3);
  ASSERT_EQ(tracks.size(), 2U);
  std::vector<std::string> names;
  for (const TraceSpan& span : tracks[0].spans) names.push_back(span.name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"ring attention, forward", "step 0: keys of 0",
                                      "step 1: keys of 1", "wait: recv keys and values from 1"}));
  const TraceSpan& pass = tracks[0].spans[0];
  for (const TraceSpan& span : tracks[0].spans) {
    EXPECT_GE(span.begin_ns, pass.begin_ns);
    EXPECT_LE(span.begin_ns + span.duration_ns, pass.begin_ns + pass.duration_ns);
  }
  ASSERT_EQ(tracks[1].spans.size(), 1U);
  EXPECT_EQ(tracks[1].spans[0].name, "wait: all_reduce gradients");
  EXPECT_EQ(tracks[1].thread, 4);
}

TEST(ContextReport, ActivitiesTravelToRank0) {
  RankTrace rank = traced_ring()[1];
  rank.clock.seconds = 100;
  align_to_rank_0_clock(rank);
  const RankTrace copy = parse_rank_trace(serialize(rank));
  const Activities& activities = copy.iterations[0].activities;
  ASSERT_EQ(activities.ring_steps.size(), 2U);
  EXPECT_DOUBLE_EQ(activities.ring_steps[1].end_s, 7.5);
  EXPECT_EQ(activities.ring_steps[1].source, 0);
  ASSERT_EQ(activities.waits.size(), 3U);
  EXPECT_EQ(activities.waits[0].what, "keys and values");
  EXPECT_DOUBLE_EQ(activities.waits[0].begin_s, 5);
  EXPECT_DOUBLE_EQ(copy.cp_link.bytes_per_s, 16);
}

}  // namespace
}  // namespace megatron
