#include "megatron/schedules/timeline.h"

#include <gtest/gtest.h>

namespace megatron {
namespace {

TEST(Timeline, GivesEachRankWhatItComputesAndItsMessages) {
  const Schedule schedule{.name = "by hand",
                          .num_ranks = 2,
                          .num_microbatches = 2,
                          .ranks = {{{StepKind::forward, 0, 0},
                                     {StepKind::send_forward, 0, 0},
                                     {StepKind::forward, 1, 0},
                                     {StepKind::send_forward, 1, 0},
                                     {StepKind::recv_backward, 0, 0}},
                                    {{StepKind::recv_forward, 0, 0}, {StepKind::forward, 0, 0}}}};
  const auto tracks =
      timeline(schedule, {{{0, 1}, {1, 2.5}, {1, 2}, {2, 2.5}, {2.5, 3}}, {{0, 0}, {2.5, 3.5}}});
  ASSERT_EQ(tracks.size(), 4u) << "rank 0: computing and two lanes of messages; rank 1: computing, "
                                  "its message takes no time";
  EXPECT_EQ(tracks[0].process_name, "rank 0");
  ASSERT_EQ(tracks[0].spans.size(), 2u);
  EXPECT_EQ(tracks[0].spans[1].name, "F 1");
  EXPECT_EQ(tracks[0].spans[1].begin_ns, 1'000'000'000);
  EXPECT_EQ(tracks[0].spans[1].duration_ns, 1'000'000'000);
  ASSERT_EQ(tracks[1].spans.size(), 2u);
  EXPECT_EQ(tracks[1].spans[0].name, "send F 0");
  EXPECT_EQ(tracks[1].spans[1].name, "recv B 0") << "begins when the first lane is free";
  EXPECT_EQ(tracks[2].spans[0].name, "send F 1");
  EXPECT_EQ(tracks[3].process, 1);
  EXPECT_EQ(tracks[3].spans[0].args[2],
            (std::pair<std::string, TraceValue>{"stage", std::int64_t{1}}));
}

TEST(Timeline, LabelsNameTheChunkWhereThereAreSeveral) {
  EXPECT_EQ(label_of({.num_chunks = 2}, {StepKind::backward_weight, 3, 1}), "W 3.1");
  EXPECT_EQ(label_of({}, {StepKind::backward, 12, 0}), "BW 12");
}

}  // namespace
}  // namespace megatron
