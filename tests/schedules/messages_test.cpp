#include "megatron/schedules/messages.h"

#include <gtest/gtest.h>

#include <map>

#include "megatron/schedules/make_schedule.h"

namespace megatron {
namespace {

using enum StepKind;
using Steps = std::vector<ScheduleStep>;

Schedule by_hand(std::int64_t chunks, std::int64_t microbatches, ChunkOrder order,
                 std::vector<Steps> ranks) {
  const auto num_ranks = static_cast<std::int64_t>(ranks.size());
  return {.name = "by hand",
          .num_ranks = num_ranks,
          .num_chunks = chunks,
          .num_microbatches = microbatches,
          .order = order,
          .ranks = std::move(ranks)};
}

TEST(WithMessages, SendsBehindReceivesInFront) {
  const Schedule schedule = by_hand(1, 2, ChunkOrder::loop,
                                    {{{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}},
                                     {{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}}});
  const Schedule near = with_messages(schedule, false);
  EXPECT_EQ(near.ranks[0], (Steps{{forward, 0},
                                  {send_forward, 0},
                                  {forward, 1},
                                  {send_forward, 1},
                                  {recv_backward, 0},
                                  {backward, 0},
                                  {recv_backward, 1},
                                  {backward, 1}}));
  EXPECT_EQ(near.ranks[1], (Steps{{recv_forward, 0},
                                  {forward, 0},
                                  {backward, 0},
                                  {send_backward, 0},
                                  {recv_forward, 1},
                                  {forward, 1},
                                  {backward, 1},
                                  {send_backward, 1}}));

  const Schedule ahead = with_messages(schedule, true);
  EXPECT_EQ(ahead.ranks[0], (Steps{{forward, 0},
                                   {send_forward, 0},
                                   {recv_backward, 0},
                                   {forward, 1},
                                   {send_forward, 1},
                                   {recv_backward, 1},
                                   {backward, 0},
                                   {backward, 1}}));
  EXPECT_EQ(ahead.ranks[1], (Steps{{recv_forward, 0},
                                   {forward, 0},
                                   {recv_forward, 1},
                                   {backward, 0},
                                   {send_backward, 0},
                                   {forward, 1},
                                   {backward, 1},
                                   {send_backward, 1}}));
}

TEST(WithMessages, AddedAgainTheyAreTheSame) {
  const Schedule once = with_messages(make_schedule({"dualpipe-v", 3, 2, 7}));
  EXPECT_EQ(with_messages(once).ranks, once.ranks);
}

TEST(WithMessages, AJoinedPairHasThemAroundIt) {
  const Schedule schedule =
      by_hand(1, 2, ChunkOrder::loop,
              {{{forward, 0}, {forward, 1}, {backward, 0}, {backward, 1}},
               {{forward, 0}, {forward, 1, 0, true}, {backward, 0}, {backward, 1}},
               {{forward, 0}, {backward, 0}, {forward, 1}, {backward, 1}}});
  EXPECT_EQ(with_messages(schedule, false).ranks[1], (Steps{{recv_forward, 0},
                                                            {forward, 0},
                                                            {send_forward, 0},
                                                            {recv_forward, 1},
                                                            {recv_backward, 0},
                                                            {forward, 1, 0, true},
                                                            {backward, 0},
                                                            {send_forward, 1},
                                                            {send_backward, 0},
                                                            {recv_backward, 1},
                                                            {backward, 1},
                                                            {send_backward, 1}}));
}

TEST(WithMessages, NothingTravelsInsideARank) {
  for (const ScheduleRequest& request :
       {ScheduleRequest{"interleaved", 1, 3, 4}, ScheduleRequest{"zb-v", 1, 2, 4},
        ScheduleRequest{"1f1b", 1, 1, 4}}) {
    const Schedule schedule = make_schedule(request);
    EXPECT_EQ(with_messages(schedule).ranks, schedule.ranks);
  }
  const Schedule turn = with_messages(
      by_hand(2, 1, ChunkOrder::v,
              {{{forward, 0, 0}, {forward, 0, 1}}, {{forward, 0, 0}, {forward, 0, 1}}}));
  EXPECT_EQ(turn.ranks[1],
            (Steps{{recv_forward, 0, 0}, {forward, 0, 0}, {forward, 0, 1}, {send_forward, 0, 1}}));
}

TEST(WithMessages, AReceiveIsPutForwardToKeepTheOrderOfTheSends) {
  // Rank 0 sends microbatch 1 first; rank 1 computes them in the opposite order.
  const Schedule schedule =
      by_hand(1, 2, ChunkOrder::loop, {{{forward, 1}, {forward, 0}}, {{forward, 0}, {forward, 1}}});
  EXPECT_EQ(with_messages(schedule, false).ranks[1],
            (Steps{{recv_forward, 1}, {recv_forward, 0}, {forward, 0}, {forward, 1}}));
}

TEST(WithMessages, ForwardAndBackwardShareTheOrderOfAPair) {
  // With two ranks and two chunks in a loop, rank 1 sends rank 0 both the forward of chunk 0 and
  // the backward of chunk 0.
  const Schedule schedule = with_messages(make_schedule({"interleaved", 2, 2, 4}), false);
  std::vector<std::pair<bool, std::int32_t>> sent, received;
  for (const ScheduleStep& step : schedule.ranks[1]) {
    if (step.kind == send_forward || step.kind == send_backward)
      sent.emplace_back(step.kind == send_forward, step.microbatch);
  }
  for (const ScheduleStep& step : schedule.ranks[0]) {
    if (step.kind == recv_forward || step.kind == recv_backward)
      received.emplace_back(step.kind == recv_forward, step.microbatch);
  }
  EXPECT_EQ(received, sent);
  EXPECT_EQ(sent.size(), 3U * 4U) << "chunk 0 forward, both chunks backward";
}

/// Runs every rank up to the first unsent message, repeatedly. Returns whether all complete.
bool ends_with_blocking_receives(const Schedule& schedule) {
  std::vector<std::size_t> position(schedule.ranks.size());
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t>
      under_way;  // by sender and receiver
  const auto passes = [&](std::int64_t rank, const ScheduleStep& step) {
    if (!is_message(step.kind)) return true;
    const bool is_send = step.kind == send_forward || step.kind == send_backward;
    const bool goes_up = step.kind == send_forward || step.kind == recv_backward;
    const std::int64_t other =
        schedule.rank_of(schedule.stage_of(rank, step.chunk) + (goes_up ? 1 : -1));
    if (is_send) return ++under_way[{rank, other}] > 0;
    if (under_way[{other, rank}] == 0) return false;
    --under_way[{other, rank}];
    return true;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (std::size_t rank = 0; rank < position.size(); ++rank) {
      const Steps& steps = schedule.ranks[rank];
      for (; position[rank] < steps.size() &&
             passes(static_cast<std::int64_t>(rank), steps[position[rank]]);
           moves = true)
        ++position[rank];
    }
  }
  for (std::size_t rank = 0; rank < position.size(); ++rank) {
    if (position[rank] != schedule.ranks[rank].size()) return false;
  }
  return true;
}

TEST(WithMessages, NotAheadAReceiveMayBlock) {
  for (const std::string& name : schedule_names()) {
    const std::int64_t chunks = fixed_num_chunks(name) != 0 ? fixed_num_chunks(name) : 3;
    for (std::int64_t ranks = 1; ranks <= 6; ++ranks) {
      for (std::int64_t microbatches = 1; microbatches <= 14; ++microbatches) {
        const ScheduleRequest request{name, ranks, chunks, microbatches};
        EXPECT_TRUE(ends_with_blocking_receives(with_messages(make_schedule(request), false)))
            << name << ' ' << ranks << ' ' << microbatches;
        EXPECT_TRUE(
            ends_with_blocking_receives(with_messages(make_forward_schedule(request), false)))
            << name << ' ' << ranks << ' ' << microbatches;
      }
    }
  }
}

}  // namespace
}  // namespace megatron
