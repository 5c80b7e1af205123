// Collectives on an axis, and their counters.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/parallel/collectives.h"
#include "support/rank_numbers.h"

namespace megatron {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Axis axis_of(Communicators& world, const char* name) {
  return {.name = name,
          .rank = world.rank(),
          .size = world.world_size(),
          .comm = world.group(first_ranks(world.world_size()), name)};
}

TEST(AxisCollectives, AreTheIdentityAtSizeOne) {
  const Axis axis;
  const at::Tensor tensor = at::arange(6).view({3, 2});
  all_reduce_(axis, tensor, "x");
  broadcast_(axis, tensor, 0, "x");
  barrier(axis, "x");
  for (const at::Tensor& out :
       {all_gather(axis, tensor, "x"), reduce_scatter(axis, tensor, "x"),
        all_to_all(axis, tensor, "x"), all_to_all(axis, tensor, "x", {.out = {3}, .in = {3}}),
        all_gather(axis, tensor, "x", {3})}) {
    EXPECT_TRUE(out.is_same(tensor));
  }
  EXPECT_TRUE(start_all_gather(axis, tensor, "x").wait().is_same(tensor));
}

TEST(AxisCollectives, TakeAnyStridesAndKeepTheOtherDimensions) {
  run_rank_threads(2, [](Communicators& world) {
    const Axis tp = axis_of(world, "tp");
    const at::Tensor in =
        at::arange(12).view({3, 4}).t() + 100 * world.rank();  // [4, 3], not contiguous
    const at::Tensor other = at::arange(12).view({3, 4}).t() + 100 * (1 - world.rank());
    const at::Tensor first = world.rank() == 0 ? in : other,
                     second = world.rank() == 0 ? other : in;
    EXPECT_TRUE(at::equal(all_gather(tp, in, "a"), at::cat({first, second})));
    EXPECT_TRUE(at::equal(start_all_gather(tp, in, "a").wait(), at::cat({first, second})));
    const at::Tensor part = (in + other).narrow(0, 2 * world.rank(), 2);
    EXPECT_TRUE(at::equal(reduce_scatter(tp, in, "b"), part));
    EXPECT_TRUE(at::equal(start_reduce_scatter(tp, in, "b").wait(), part));
    const at::Tensor mixed =
        at::cat({first.narrow(0, 2 * world.rank(), 2), second.narrow(0, 2 * world.rank(), 2)});
    EXPECT_TRUE(at::equal(all_to_all(tp, in, "c"), mixed));
    EXPECT_TRUE(at::equal(start_all_to_all(tp, in, "c").wait(), mixed));
  });
}

TEST(AxisCollectives, UnevenRowsKeepTheOtherDimensions) {
  run_rank_threads(2, [](Communicators& world) {
    const Axis ep = axis_of(world, "ep");
    const std::int64_t own = world.rank();
    // Rank 0 sends one row to each rank; rank 1 sends three to rank 0 and none to itself.
    const at::Tensor zero = at::arange(6).view({3, 2}).t(),
                     one = at::arange(9).view({3, 3}).t() + 50;
    const RowCounts rows =
        own == 0 ? RowCounts{.out = {1, 3}, .in = {1, 1}} : RowCounts{.out = {1, 0}, .in = {3, 0}};
    const at::Tensor expected =
        own == 0 ? at::cat({zero.narrow(0, 0, 1), one}) : zero.narrow(0, 1, 1);
    const at::Tensor mine = own == 0 ? zero : one;
    EXPECT_TRUE(at::equal(all_to_all(ep, mine, "a", rows), expected));
    EXPECT_TRUE(at::equal(start_all_to_all(ep, mine, "a", rows).wait(), expected));
    EXPECT_TRUE(at::equal(all_gather(ep, mine, "b", {2, 3}), at::cat({zero, one})));
  });
}

TEST(AxisCollectives, ADimensionThatDoesNotDivideIsRefused) {
  EXPECT_THAT(
      failure_of_ranks(2,
                       [](Communicators& world) {
                         reduce_scatter(axis_of(world, "tp"), at::zeros({3, 2}), "input gradient");
                       }),
      HasSubstr("'input gradient': shape [3, 2] does not divide by tp=2"));
}

TEST(AxisCollectives, ARingHasAtLeastTwoRanks) {
  const at::Tensor tensor = at::zeros({2});
  EXPECT_THROW(exchange_around_ring(Axis{"cp"}, tensor, tensor, "keys"), InternalError);
}

TEST(CommCounters, CountCallsBytesAndWaitingByAxisOperationAndName) {
  run_rank_threads(2, [](Communicators& world) {
    const Axis tp = axis_of(world, "tp");
    const at::Tensor in = at::ones({8, 16}, at::kBFloat16);
    for (int i = 0; i < 3; ++i) all_reduce_(tp, in, "mlp");
    all_gather(tp, in, "sequence");      // counts the result: 2 · 256 bytes
    reduce_scatter(tp, in, "sequence");  // counts the input: 256 bytes
    PendingTensor pending = start_all_reduce_(tp, in, "late");
    pending.wait();
    const std::vector<CommCount> rows = world.counters().take();
    ASSERT_EQ(rows.size(), 4);
    const auto words = [&](std::size_t i) {
      return rows[i].axis + " " + rows[i].operation + " " + rows[i].what;
    };
    EXPECT_THAT((std::vector{words(0), words(1), words(2), words(3)}),
                ElementsAre("tp all_gather sequence", "tp all_reduce late", "tp all_reduce mlp",
                            "tp reduce_scatter sequence"));
    EXPECT_THAT((std::vector{rows[0].bytes, rows[1].bytes, rows[2].bytes, rows[3].bytes}),
                ElementsAre(512, 256, 3 * 256, 256));
    EXPECT_THAT((std::vector{rows[0].calls, rows[1].calls, rows[2].calls, rows[3].calls}),
                ElementsAre(1, 1, 3, 1));
    for (const CommCount& row : rows) EXPECT_GT(row.exposed_ms, 0.0);
    EXPECT_TRUE(world.counters().take().empty());
  });
}

/// Milliseconds that `action` takes.
template <class Action>
double milliseconds_of(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Holds on a machine of any speed: what was counted lies within what the caller measures around
/// its calls, and what the other rank is late by shows in at least one of many tries.
TEST(CommCounters, ExposedTimeIsWhatTheCallerWaited) {
  run_rank_threads(2, [](Communicators& world) {
    const Axis dp = axis_of(world, "dp");
    const at::Tensor tensor = at::ones({4});
    const std::chrono::milliseconds delay(5);
    double longest_ms = 0;
    for (int i = 0; i < 20; ++i) {
      if (world.rank() == 1) std::this_thread::sleep_for(delay);
      const double around_ms = milliseconds_of([&] { all_reduce_(dp, tensor, "blocking"); });
      const double exposed_ms = world.counters().take().at(0).exposed_ms;
      EXPECT_LE(exposed_ms, around_ms);
      longest_ms = std::max(longest_ms, exposed_ms);

      PendingTensor hidden = start_all_reduce_(dp, tensor, "hidden");
      std::this_thread::sleep_for(delay);  // counts for neither rank
      const double waited_ms = milliseconds_of([&] { hidden.wait(); });
      EXPECT_LE(world.counters().take().at(0).exposed_ms, waited_ms);
    }
    if (world.rank() == 0) {
      EXPECT_GT(longest_ms, 2.5);
    }
  });
}

TEST(CommCounters, TheTableSaysPerStepFiguresAndATotal) {
  EXPECT_EQ(format_comm_table({}), "");
  const std::vector<CommCount> rows{{.axis = "tp",
                                     .operation = "all_reduce",
                                     .what = "mlp",
                                     .calls = 8,
                                     .bytes = 4'000'000,
                                     .exposed_ms = 3.0},
                                    {.axis = "dp",
                                     .operation = "reduce_scatter",
                                     .what = "gradients",
                                     .calls = 2,
                                     .bytes = 2'000'000,
                                     .exposed_ms = 1.0}};
  const std::string table = format_comm_table(rows, 2);
  EXPECT_THAT(table, HasSubstr("tp         all_reduce     mlp                                 4.0  "
                               "      2.000         1.50\n"));
  EXPECT_THAT(table, HasSubstr("total                                                         5.0  "
                               "      3.000         2.00\n"));
}

}  // namespace
}  // namespace megatron
