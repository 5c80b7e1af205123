// Makes the ranks of a mesh and sums over the group of every axis.
#include "megatron/parallel/make_rank.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>

#include "megatron/parallel/rank.h"
#include "megatron/parallel/rank_threads.h"

namespace megatron {
namespace {

using namespace std::chrono_literals;

/// Returns the sum of all members' world ranks, computed by the group.
double sum_of_ranks(Comm& comm, std::int64_t rank) {
  const at::Tensor number = at::full({1}, static_cast<double>(rank));
  comm.all_reduce(number, "numbers");
  return number.item<double>();
}

double expected_sum(const RankList& ranks) {
  return std::accumulate(ranks.begin(), ranks.end(), 0.0);
}

void run(std::int64_t world_size, const std::function<void(Communicators&)>& body) {
  run_rank_threads(world_size, body, {.timeout = 20s});
}

TEST(MakeRank, EveryAxisSpeaksToItsGroup) {
  const Mesh mesh({.tp = 2, .cp = 2, .pp = 2}, 16);
  run(16, [&](Communicators& communicators) {
    const Rank rank = make_rank(mesh, communicators, {.infers = true});
    for (const Axis* axis : {&rank.tp, &rank.cp, &rank.dp, &rank.pp, &rank.dp_cp, &rank.tp_cp,
                             &rank.model, &rank.replica, &rank.world}) {
      EXPECT_EQ(axis->comm->rank(), axis->rank) << axis->name;
      EXPECT_EQ(sum_of_ranks(*axis->comm, rank.index),
                expected_sum(mesh.group(rank.index, axis->name)))
          << axis->name << " of rank " << rank.index;
    }
  });
}

/// Returns the axes that have counted a call since the last call.
std::vector<std::string> counted_axes(Communicators& communicators) {
  std::vector<std::string> axes;
  for (const CommCount& row : communicators.counters().take()) axes.push_back(row.axis);
  return axes;
}

/// Every axis of two or more ranks counts its blocking and its asynchronous calls by itself,
/// however many other axes have the same ranks.
void expect_own_counts(const Mesh& mesh, const std::vector<std::string>& names) {
  run(mesh.world_size(), [&](Communicators& communicators) {
    const Rank rank = make_rank(mesh, communicators);
    counted_axes(communicators);
    std::vector<std::string> called;
    for (const Axis* axis :
         {&rank.tp, &rank.cp, &rank.dp, &rank.pp, &rank.dp_cp, &rank.tp_cp, &rank.model,
          &rank.world, &rank.etp, &rank.ep, &rank.edp, &rank.etp_ep, &rank.expert_model}) {
      if (axis->size == 1) continue;
      called.push_back(axis->name);
      sum_of_ranks(*axis->comm, rank.index);
      EXPECT_EQ(counted_axes(communicators), std::vector{axis->name});
      axis->comm->start_all_reduce(at::full({1}, 1.0), "numbers")->wait();
      const std::vector<CommCount> rows = communicators.counters().take();
      ASSERT_EQ(rows.size(), 1);
      EXPECT_EQ(rows[0].axis, axis->name);
      EXPECT_EQ(rows[0].calls, 1);
      EXPECT_GT(rows[0].exposed_ms, 0.0);
    }
    EXPECT_EQ(called, names);
  });
}

TEST(MakeRank, AxesOfTheSameRanksCountTheirOwnCalls) {
  expect_own_counts(Mesh({}, 2), {"dp", "dp-cp", "world", "edp"});
  expect_own_counts(Mesh({.ep = 2}, 2), {"dp", "dp-cp", "world", "ep", "etp-ep", "etp-ep-pp"});
  expect_own_counts(Mesh({.tp = 2}, 2),
                    {"tp", "tp-cp", "tp-pp", "world", "etp", "etp-ep", "etp-ep-pp"});
  expect_own_counts(Mesh({.pp = 2}, 2), {"pp", "tp-pp", "world", "etp-ep-pp"});
  expect_own_counts(Mesh({.cp = 2}, 2), {"cp", "dp-cp", "tp-cp", "world", "edp"});
}

/// Experts lie over the ranks of dp, cp and tp alike: their group may be a part of a microbatch's
/// ranks, all of them, or those of several microbatches.
TEST(MakeRank, ExpertsSpanTheRanksOfASequence) {
  const Mesh within({.tp = 2, .cp = 4, .ep = 2, .etp = 1}, 8), across({.cp = 2, .ep = 4}, 8),
      apart({.cp = 3, .ep = 2}, 6);
  EXPECT_EQ(within.group(5, "tp-cp"), (RankList{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(within.group(5, "etp-ep"), (RankList{4, 5}));
  EXPECT_EQ(within.group(5, "edp"), (RankList{1, 3, 5, 7}));
  EXPECT_EQ(across.group(5, "tp-cp"), (RankList{4, 5}));
  EXPECT_EQ(across.group(5, "etp-ep"), (RankList{4, 5, 6, 7}));
  EXPECT_EQ(across.group(5, "edp"), (RankList{1, 5}));
  EXPECT_EQ(apart.group(2, "tp-cp"), (RankList{0, 1, 2}));
  EXPECT_EQ(apart.group(2, "etp-ep"), (RankList{2, 3}));
}

}  // namespace
}  // namespace megatron
