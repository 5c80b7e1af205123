// Makes the ranks of a mesh and sums over the group of every axis.
#include "megatron/parallel/make_rank.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <numeric>

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
    const Rank rank = make_rank(mesh, communicators);
    for (const Axis* axis :
         {&rank.tp, &rank.cp, &rank.dp, &rank.pp, &rank.dp_cp, &rank.model, &rank.world}) {
      EXPECT_EQ(axis->comm->rank(), axis->rank) << axis->name;
      EXPECT_EQ(sum_of_ranks(*axis->comm, rank.index),
                expected_sum(mesh.group(rank.index, axis->name)))
          << axis->name << " of rank " << rank.index;
    }
  });
}

TEST(MakeRank, AxesOfTheSameRanksShareAGroup) {
  run(2, [](Communicators& communicators) {
    const Rank rank = make_rank(Mesh({}, 2), communicators);
    EXPECT_EQ(rank.tp.comm, nullptr);
    EXPECT_EQ(rank.dp.comm, rank.dp_cp.comm);
    EXPECT_EQ(rank.dp.comm, rank.world.comm);
    EXPECT_EQ(rank.dp.comm->name(), "dp");
  });
}

}  // namespace
}  // namespace megatron
