// The steps of context parallelism and their simulation: work and balance against sums over single
// positions, times against those that follow by hand. tests/ops/ compares the steps with what runs.
#include "megatron/schedules/context_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace megatron {
namespace {

ContextAttention ring_of(std::int64_t ranks) {
  return {.exchange = {.ranks = ranks},
          .mask = {},
          .length = 256 * ranks,
          .samples = 2,
          .heads = 8,
          .groups = 4,
          .key_channels = 16,
          .value_channels = 16};
}

std::vector<double> flops_of_ranks(const ContextSteps& steps) {
  std::vector<double> flops;
  for (const auto& rank : steps) {
    double& sum = flops.emplace_back(0);
    for (const ContextStep& step : rank) sum += step.flops;
  }
  return flops;
}

/// A causal query at position q sees q + 1 keys; a pair costs 4·d in forward and 10·d in backward.
TEST(ContextExchange, CountsTheWorkOfEveryQuery) {
  for (const std::int64_t head_ranks : {1, 2, 4}) {
    ContextAttention attention = ring_of(4);
    attention.exchange.head_ranks = head_ranks;
    const double length = static_cast<double>(attention.length),
                 pairs = 2 * 8 * length * (length + 1) / 2;
    const auto total = [](const std::vector<double>& numbers) {
      return std::accumulate(numbers.begin(), numbers.end(), 0.0);
    };
    EXPECT_DOUBLE_EQ(total(flops_of_ranks(forward_steps(attention))), pairs * 4 * 16);
    EXPECT_DOUBLE_EQ(total(flops_of_ranks(backward_steps(attention))), pairs * 10 * 16);
  }
}

TEST(ContextExchange, ZigzagBalancesCausalWork) {
  for (const std::int64_t ranks : {2, 3, 8, 64}) {
    const std::vector<double> flops = flops_of_ranks(forward_steps(ring_of(ranks)));
    const auto [least, most] = std::ranges::minmax(flops);
    EXPECT_LE(most / least, 1.02) << ranks << " ranks";
  }
}

/// Three ranks that compute 3 s in each step.
class EvenRing : public testing::Test {
 protected:
  ContextAttention attention_ = ring_of(3);
  RingStepSeconds compute_s_ = RingStepSeconds(3, {3, 3, 3});
  double message_bytes_ = 2.0 * 256 * 2 * 4 * 16 * 2;  ///< keys and values of a rank

  ContextSimulation run(const ContextSteps& steps, double bytes_per_s, double latency_s = 0) const {
    return simulate(steps, attention_.exchange, compute_s_,
                    {.bytes_per_s = bytes_per_s, .latency_s = latency_s});
  }
};

TEST_F(EvenRing, HidesMessagesThatTakeLessThanAttention) {
  const ContextSimulation run = this->run(forward_steps(attention_), message_bytes_ / 2.5, 0.5);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_DOUBLE_EQ(run.busy_s[rank], 9);
    EXPECT_DOUBLE_EQ(run.exposed_s[rank], 0);
    EXPECT_DOUBLE_EQ(run.end_s[rank], 9);
  }
}

/// Two messages of 4 s begin with the first two steps: a rank waits 1 s after each of these.
TEST_F(EvenRing, ShowsTheRestOfLongerMessages) {
  const ContextSimulation run = this->run(forward_steps(attention_), message_bytes_ / 4);
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_DOUBLE_EQ(run.exposed_s[rank], 2);
  EXPECT_DOUBLE_EQ(run.makespan_s(), 11);
}

/// Backward: with sums as large as keys and values and 1 s for a message, step 1 begins at 3. The
/// gradients of step 0 arrive at 4, the next keys, which the same link carries behind them, at 5,
/// all before step 1 ends. Only the last gradients are behind no attention: they are under way from
/// 9 to 10.
TEST_F(EvenRing, OnlyTheLastGradientsAreExposed) {
  attention_.sum_bytes = attention_.element_bytes;
  const ContextSimulation run = this->run(backward_steps(attention_), message_bytes_);
  for (std::size_t rank = 0; rank < 3; ++rank) EXPECT_DOUBLE_EQ(run.exposed_s[rank], 1);
  EXPECT_DOUBLE_EQ(run.makespan_s(), 10);
}

/// Rank 0 computes 8 s in its first step, and posts the messages of step 1 then. The others have
/// computed step 1 at 6: rank 1 waits for the keys from rank 0, rank 2 until rank 0 takes its own.
TEST_F(EvenRing, ASlowRankDelaysItsNeighbours) {
  compute_s_[0][0] = 8;
  const ContextSimulation run = this->run(forward_steps(attention_), 1e30);
  EXPECT_DOUBLE_EQ(run.exposed_s[0], 0);
  EXPECT_DOUBLE_EQ(run.end_s[0], 14);
  for (const std::size_t rank : {1U, 2U}) {
    EXPECT_DOUBLE_EQ(run.exposed_s[rank], 2);
    EXPECT_DOUBLE_EQ(run.end_s[rank], 11);
  }
}

/// Collectives begin when the last rank of the group comes, and are not hidden.
TEST(ContextExchange, CollectivesAreExposed) {
  ContextAttention attention = ring_of(4);
  attention.exchange.head_ranks = 4;
  const ContextSteps steps = forward_steps(attention);
  const ContextSimulation run = simulate(steps, attention.exchange, {{1}, {2}, {4}, {3}},
                                         {.bytes_per_s = 1e30, .latency_s = 0.25});
  for (std::size_t rank = 0; rank < 4; ++rank) EXPECT_DOUBLE_EQ(run.end_s[rank], 4 * 0.25 + 4);
  EXPECT_DOUBLE_EQ(run.exposed_s[2], 1);
  EXPECT_DOUBLE_EQ(run.exposed_s[0], 4);
}

/// Groups of two ranks exchange heads, and two such groups keys. Rank 1 of 4 sends to rank 3.
TEST(ContextExchange, GroupsFormARing) {
  ContextAttention attention = ring_of(4);
  attention.exchange.head_ranks = 2;
  const auto steps = forward_steps(attention);
  const auto send = std::ranges::find(steps[1], ContextStepKind::send, &ContextStep::kind);
  ASSERT_NE(send, steps[1].end());
  EXPECT_EQ(send->peer, 3);
  // Half of the four groups, of twice the rows.
  EXPECT_DOUBLE_EQ(send->bytes, 2.0 * 512 * 2 * 2 * 16 * 2);
}

/// More ranks than query groups: ranks that share a group each get a copy of its keys.
TEST(ContextExchange, RanksGetCopiesOfASharedGroup) {
  ContextAttention attention = ring_of(8);
  attention.exchange.head_ranks = 8;
  const auto steps = forward_steps(attention);
  const double rows = 256.0 * 2, channels = 16, bytes = 2;
  EXPECT_EQ(steps[0][1].what, "all_to_all keys");
  EXPECT_DOUBLE_EQ(steps[0][1].bytes, rows * 8 * channels * bytes * 7 / 8);
}

}  // namespace
}  // namespace megatron
