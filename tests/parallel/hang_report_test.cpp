// The hang report must name the ranks that do not wait, not those that wait for them.
#include "megatron/parallel/failure/hang_report.h"

#include <gtest/gtest.h>

#include "megatron/base/error.h"
#include "megatron/parallel/failure/host_status.h"

namespace megatron {
namespace {

using Kind = RankState::Kind;

RankState waiting(const std::string& call, std::vector<std::int64_t> missing,
                  std::int64_t iteration = 7) {
  return {Kind::waiting, {true, call, std::move(missing), iteration}};
}

TimedOutRank asker(std::vector<std::int64_t> missing) {
  return {.rank = 0, .missing = std::move(missing), .timeout = std::chrono::seconds(15)};
}

TEST(HangReport, NamesTheRankThatIsMissed) {
  EXPECT_EQ(hang_text(asker({2, 3}), {{0, waiting("barrier 'end' on dp", {2, 3}, -1)}}),
            "ranks 2, 3 have not arrived after 15 s");
  EXPECT_EQ(hang_text(asker({3}),
                      {{0, waiting("barrier 'end' on dp", {3})}, {3, {Kind::stopped, {}, 77}}}),
            "rank 3 has not arrived after 15 s (iteration 7; rank 3 is stopped (process 77))");
  EXPECT_EQ(hang_text(asker({3}), {{0, waiting("barrier 'end' on dp", {3})},
                                   {3, {Kind::running, {false, "", {}, 6}, 77, "node2"}}}),
            "rank 3 has not arrived after 15 s (iteration 7; rank 3 on node2 is outside of every "
            "call, in iteration 6)");
}

/// Rank 0 waits for 1, which waits for 2, which waits for 3.
TEST(HangReport, FollowsWhoWaitsForWhom) {
  const RankStates states{{0, waiting("all_reduce 'norm' on dp", {1})},
                          {1, waiting("recv 'activations' on pp", {2})},
                          {2, waiting("all_gather 'weights' on tp", {3})},
                          {3, {Kind::silent, {}, 0, "node2"}}};
  EXPECT_EQ(hang_text(asker({1}), states),
            "rank 3 has not arrived after 15 s (iteration 7; rank 3 on node2 does not answer: it "
            "is stopped, or the network to it is cut; "
            "rank 1 waits for rank 2 in recv 'activations' on pp; rank 2 waits for rank 3 in "
            "all_gather 'weights' on tp)");
}

/// A stopped rank is a likelier cause than one that computes.
TEST(HangReport, PrefersRanksThatStandStill) {
  const RankStates states{{0, waiting("all_reduce 'norm' on dp", {1, 2})},
                          {1, {Kind::running}},
                          {2, {Kind::stopped, {}, 5}}};
  EXPECT_EQ(hang_text(asker({1, 2}), states),
            "rank 2 has not arrived after 15 s (iteration 7; rank 2 is stopped (process 5))");
}

TEST(HangReport, TellsOfRanksThatWaitForEachOther) {
  const RankStates states{{0, waiting("all_reduce 'a' on tp", {1})},
                          {1, waiting("recv 'b' on pp", {0})}};
  EXPECT_EQ(
      hang_text(asker({1}), states),
      "rank 1 has not arrived after 15 s (iteration 7; rank 1 waits for rank 0 in recv 'b' on pp)");
}

TEST(HangReport, KnowsWhomToAskAbout) {
  const RankStates states{{0, waiting("a", {1})}, {1, waiting("b", {2, 5})}, {2, {Kind::running}}};
  EXPECT_EQ(unknown_ranks({1}, states), std::vector<std::int64_t>{5});
}

TEST(HangReport, StatesTravelAsText) {
  const RankStates states{{4, waiting("all_reduce 'norm' on dp", {1, 9})},
                          {5, {Kind::stopped, {}, 12, "node2"}}};
  EXPECT_EQ(write_states(read_states(write_states(states), 10)), write_states(states));
  EXPECT_EQ(read_states(write_states(states), 10).at(4).wait.missing,
            (std::vector<std::int64_t>{1, 9}));
  EXPECT_THROW(read_states(write_states(states), 9), UserError) << "there is no rank 9";
}

/// An asynchronous call does not count as a wait until its caller blocks on it.
TEST(WaitTable, CountOnlyWhenTheCallerStandsStill) {
  HostStatus host_status(SharedMemory::for_threads(HostStatus::bytes(2)), 2);
  const CommCall call{.operation = CommOperation::recv, .what = "activations", .axis = "pp"};
  host_status.enter(0);
  host_status.waits().note_iteration(0, 3);
  {
    const WaitTable::Wait wait(host_status.waits(), 0, call, {1});
    host_status.waits().publish(0);
    EXPECT_EQ(host_status.states().at(0).kind, Kind::running);
    host_status.waits().add_blocked(0, 1);
    host_status.waits().publish(0);
    const RankState state = host_status.states().at(0);
    EXPECT_EQ(state.kind, Kind::waiting);
    EXPECT_EQ(state.wait.call, "recv 'activations' on pp");
    EXPECT_EQ(state.wait.missing, std::vector<std::int64_t>{1});
    EXPECT_EQ(state.wait.iteration, 3);
  }
  EXPECT_EQ(host_status.states().at(0).kind, Kind::running);
  EXPECT_FALSE(host_status.states().contains(1)) << "which never came";
}

/// All ranks of a host see the request of another; their answers would be equal.
TEST(HostStatus, OneRankOfAHostAnswersARequestForStates) {
  HostStatus host_status(SharedMemory::for_threads(HostStatus::bytes(2)), 2);
  EXPECT_EQ(host_status.answered_request(), 0);
  EXPECT_TRUE(host_status.claim_states_request(1));
  EXPECT_FALSE(host_status.claim_states_request(1)) << "another rank answers";
  host_status.set_answered_request(1);
  EXPECT_EQ(host_status.answered_request(), 1);
  EXPECT_TRUE(host_status.claim_states_request(3)) << "a later request";
  EXPECT_FALSE(host_status.claim_states_request(2)) << "its answer serves the earlier one too";
  host_status.set_answered_request(3);
  host_status.set_answered_request(2);
  EXPECT_EQ(host_status.answered_request(), 3);
}

}  // namespace
}  // namespace megatron
