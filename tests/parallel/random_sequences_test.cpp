// Random sequences of blocking and asynchronous operations over overlapping groups, waited for in
// any order. Every result is compared with arithmetic. A failure prints its seed, and
// MEGATRON_TEST_SEED repeats it.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>

#include "support/rank_numbers.h"

namespace megatron {
namespace {

using Random = std::mt19937_64;
using Ranks = std::vector<std::int64_t>;

std::int64_t draw(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

struct Step {
  Ranks ranks;
  /// 0 all_reduce, 1 all_gather, 2 reduce_scatter, 3 all_to_all, 4 broadcast, 5 message from the
  /// first rank to the last, 6 barrier, 7 uneven all_to_all.
  int kind = 0;
  std::int64_t elements = 0, number = 0;
  bool started = false;
};

/// Returns a plan that is equal on all ranks.
std::vector<Step> draw_plan(Random& random, std::int64_t world) {
  std::vector<Ranks> groups;
  while (groups.size() < 4) {
    Ranks ranks = first_ranks(world);
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(static_cast<std::size_t>(draw(random, 2, world)));
    std::sort(ranks.begin(), ranks.end());
    groups.push_back(ranks);
  }
  std::vector<Step> plan;
  for (std::int64_t number = 0; number < 40; ++number) {
    const std::int64_t elements = draw(random, 0, 9) == 0 ? 50'000 : draw(random, 0, 600);
    plan.push_back({groups[static_cast<std::size_t>(draw(random, 0, 3))],
                    static_cast<int>(draw(random, 0, 7)), elements, number,
                    draw(random, 0, 1) == 1});
  }
  return plan;
}

at::Tensor value_of(const Step& step, std::int64_t rank, std::int64_t elements) {
  return at::arange(elements, at::kLong)
      .mul(step.number + 1)
      .add(rank * 7)
      .remainder(61)
      .to(at::kFloat);
}

struct Pending {
  PendingWork work;
  at::Tensor out, in, expected;
  std::int64_t number;
};

Pending begin(Comm& comm, const Step& step) {
  const std::int64_t size = comm.size(), n = step.elements, own = comm.rank();
  Pending pending{.work = {},
                  .out = {},
                  .in = value_of(step, own, n * size),
                  .expected = {},
                  .number = step.number};
  at::Tensor sum = at::zeros({n * size});
  for (std::int64_t rank = 0; rank < size; ++rank) sum += value_of(step, rank, n * size);
  switch (step.kind) {
    case 0:
      pending.out = pending.in.clone();
      pending.expected = sum;
      pending.work = comm.start_all_reduce(pending.out, "a");
      break;
    case 1: {
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < size; ++rank) parts.push_back(value_of(step, rank, n));
      pending.in = value_of(step, own, n);
      pending.out = at::zeros({n * size});
      pending.expected = at::cat(parts);
      pending.work = comm.start_all_gather(pending.out, pending.in, "b");
      break;
    }
    case 2:
      pending.out = at::zeros({n});
      pending.expected = sum.narrow(0, own * n, n);
      pending.work = comm.start_reduce_scatter(pending.out, pending.in, "c");
      break;
    case 3: {
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < size; ++rank)
        parts.push_back(value_of(step, rank, n * size).narrow(0, own * n, n));
      pending.out = at::zeros({n * size});
      pending.expected = at::cat(parts);
      pending.work = comm.start_all_to_all(pending.out, pending.in, "d");
      break;
    }
    case 7: {  // rank r has r · n elements for every rank
      RowCounts rows{.out = {}, .in = std::vector(static_cast<std::size_t>(size), own * n)};
      std::vector<at::Tensor> parts;
      for (std::int64_t rank = 0; rank < size; ++rank) {
        rows.out.push_back(rank * n);
        parts.push_back(value_of(step, rank, rank * n * size).narrow(0, own * rank * n, rank * n));
      }
      pending.in = value_of(step, own, own * n * size);
      pending.expected = at::cat(parts);
      pending.out = at::empty_like(pending.expected);
      pending.work = comm.start_all_to_all(pending.out, pending.in, "h", rows);
      break;
    }
    case 4:
      pending.out = pending.in.clone();
      pending.expected = value_of(step, size - 1, n * size);
      comm.broadcast(pending.out, size - 1, "e");
      break;
    default:
      pending.out = pending.expected = at::zeros({0});
      if (step.kind == 6) {
        comm.barrier("f");
      } else if (own == 0) {
        pending.work = comm.start_send(pending.in, size - 1, "g");
      } else if (own == size - 1) {
        pending.out = at::zeros({n * size});
        pending.expected = value_of(step, 0, n * size);
        pending.work = comm.start_recv(pending.out, 0, "g");
      }
  }
  return pending;
}

void finish(Pending& pending) {
  if (pending.work) pending.work->wait();
  EXPECT_TRUE(at::equal(pending.out, pending.expected)) << "operation " << pending.number;
}

void follow(Communicators& world, const std::vector<Step>& plan, Random random) {
  std::vector<Pending> waiting;
  for (const Step& step : plan) {
    if (std::find(step.ranks.begin(), step.ranks.end(), world.rank()) == step.ranks.end()) continue;
    waiting.push_back(begin(*world.group(step.ranks, "random"), step));
    if (!step.started) finish(waiting.back()), waiting.pop_back();
  }
  std::shuffle(waiting.begin(), waiting.end(), random);
  for (Pending& pending : waiting) finish(pending);
}

TEST(RandomSequences, OfOverlappingGroupsEqualArithmetic) {
  const char* wanted = std::getenv("MEGATRON_TEST_SEED");
  const std::uint64_t first = wanted != nullptr ? std::stoull(wanted) : std::random_device()();
  for (std::uint64_t seed = first; seed < first + (wanted != nullptr ? 1 : 12); ++seed) {
    SCOPED_TRACE("MEGATRON_TEST_SEED=" + std::to_string(seed));
    Random random(seed);
    const std::int64_t world = draw(random, 2, 6);
    const std::vector<Step> plan = draw_plan(random, world);
    run_rank_threads(world, [&](Communicators& communicators) {
      follow(communicators, plan, Random(seed + static_cast<std::uint64_t>(communicators.rank())));
    });
    ASSERT_FALSE(testing::Test::HasFailure()) << "MEGATRON_TEST_SEED=" << seed;
  }
}

TEST(StartedOperations, GoOnWhileTheCallerComputes) {
  run_rank_threads(2, [](Communicators& world) {
    const auto comm = world.group({0, 1}, "dp");
    std::vector<at::Tensor> buckets;
    std::vector<PendingWork> works;
    for (int i = 0; i < 4; ++i) buckets.push_back(at::full({100'000}, static_cast<double>(i + 1)));
    for (const at::Tensor& bucket : buckets)
      works.push_back(comm->start_all_reduce(bucket, "gradients"));
    // All operations complete although nothing has waited for them, however long it takes.
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      while (buckets[i][99'999].item<double>() != 2.0 * static_cast<double>(i + 1))
        std::this_thread::yield();
    }
    const CommCount counted = world.counters().take().at(0);
    EXPECT_EQ(counted.calls, 4);
    EXPECT_EQ(counted.exposed_ms, 0.0);
    for (auto work = works.rbegin(); work != works.rend(); ++work) (*work)->wait();
    for (std::size_t i = 0; i < buckets.size(); ++i)
      EXPECT_TRUE(at::equal(buckets[i], at::full({100'000}, 2.0 * static_cast<double>(i + 1))));
  });
}

TEST(StartedOperations, ABlockingCallKeepsItsTurn) {
  run_rank_threads(2, [](Communicators& world) {
    const auto comm = world.group({0, 1}, "dp");
    at::Tensor tensor = at::ones({1000});
    const PendingWork first = comm->start_all_reduce(tensor, "first");
    comm->all_reduce(tensor, "second");
    EXPECT_EQ(tensor[0].item<double>(), 4.0);
  });
}

TEST(StartedOperations, MessagesBothWaysNeedNoOrderBetweenPartners) {
  run_rank_threads(2, [](Communicators& world) {
    const auto comm = world.group({0, 1}, "pp");
    const std::int64_t other = 1 - world.rank();
    at::Tensor sent = at::full({1'000'000}, static_cast<double>(world.rank())),
               received = at::empty({1'000'000});
    const PendingWork sending = comm->start_send(sent, other, "both");
    const PendingWork receiving = comm->start_recv(received, other, "both");
    sending->wait();
    receiving->wait();
    EXPECT_TRUE(at::equal(received, at::full({1'000'000}, static_cast<double>(other))));
  });
}

TEST(StartedOperations, WorkThatNobodyWaitsForIsFinishedBeforeItsTensorsGo) {
  run_rank_threads(2, [](Communicators& world) {
    const auto comm = world.group({0, 1}, "dp");
    std::vector<at::Tensor> kept;
    for (int i = 0; i < 20; ++i) {
      kept.push_back(at::full({10'000}, static_cast<double>(i)));
      comm->start_all_reduce(kept.back(), "dropped");         // the work goes, the tensor stays
      comm->start_all_reduce(at::ones({10'000}), "dropped");  // both go
    }
    comm->barrier("end");
    for (int i = 0; i < 20; ++i)
      EXPECT_TRUE(at::equal(kept[static_cast<std::size_t>(i)], at::full({10'000}, 2.0 * i))) << i;
    const std::vector<CommCount> rows = world.counters().take();
    const auto dropped = std::ranges::find_if(
        rows, [](const CommCount& row) { return std::string(row.what) == "dropped"; });
    ASSERT_NE(dropped, rows.end());
    EXPECT_EQ(dropped->calls, 40);
  });
}

}  // namespace
}  // namespace megatron
