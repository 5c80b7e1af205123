#include "megatron/schedules/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "megatron/base/error.h"
#include "megatron/schedules/improve_schedule.h"
#include "megatron/schedules/list_schedule.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "megatron/schedules/validate.h"

namespace megatron {
namespace {

/// Returns the costs of 4·p equal layers on p ranks. The last stage also has the output layer and
/// loss, which cost as much as `head` layers, and the first an embedding.
CostModel uneven_costs(std::int64_t ranks, std::int64_t chunks, double head, double message_s = 0) {
  const double layers = 4.0 / static_cast<double>(chunks);
  CostModel costs{
      .stages = std::vector<StageCost>(static_cast<std::size_t>(ranks * chunks),
                                       {layers, layers, layers, layers / 4, layers / 4}),
      .message_s = message_s};
  StageCost& last = costs.stages.back();
  last.forward_s += head, last.backward_input_s += head, last.backward_weight_s += head;
  costs.stages.front().backward_weight_s += 0.5;
  return costs;
}

SearchRequest uneven_request(std::int64_t ranks, std::int64_t microbatches, double head,
                             double message_s = 0) {
  return {.num_ranks = ranks,
          .num_microbatches = microbatches,
          .layouts = {{1, ChunkOrder::loop, uneven_costs(ranks, 1, head, message_s)},
                      {2, ChunkOrder::loop, uneven_costs(ranks, 2, head, message_s)},
                      {2, ChunkOrder::v, uneven_costs(ranks, 2, head, message_s)}}};
}

double best_fixed(const SearchRequest& request) {
  double best = 1e300;
  for (const ScheduleCandidate& candidate : fixed_candidates(request)) {
    const bool fits = request.activation_limit <= 0 ||
                      candidate.peak_activation <= request.activation_limit * (1 + 1e-9);
    if (candidate.problem.empty() && fits) best = std::min(best, candidate.makespan_s);
  }
  return best;
}

void expect_right(const ScheduleCandidate& found, const SearchRequest& request) {
  const Schedule schedule = with_messages(found.schedule);
  EXPECT_EQ(validate_schedule(schedule), std::nullopt);
  const Simulation run = simulate(schedule, found.costs);
  EXPECT_DOUBLE_EQ(run.makespan_s, found.makespan_s);
  const double peak = *std::max_element(run.peak_activation.begin(), run.peak_activation.end());
  EXPECT_DOUBLE_EQ(peak, found.peak_activation);
  EXPECT_LE(peak, request.activation_limit > 0 ? request.activation_limit * (1 + 1e-9) : peak);
}

TEST(Search, IsNeverWorseThanTheBestFixedSchedule) {
  for (const std::int64_t ranks : {1, 2, 4}) {
    for (const std::int64_t microbatches : {1, 3, 8}) {
      for (const double head : {0.0, 3.0}) {
        for (const double limit : {0.0, 1.5, static_cast<double>(ranks) + 1}) {
          SearchRequest request = uneven_request(ranks, microbatches, head, 0.3);
          request.activation_limit = limit;
          request.effort = 400'000;
          const ScheduleCandidate found = search_schedule(request);
          expect_right(found, request);
          EXPECT_LE(found.makespan_s, best_fixed(request) * (1 + 1e-9))
              << ranks << " ranks, " << microbatches << " microbatches, limit " << limit;
        }
      }
    }
  }
}

/// Returns a model in `ranks` parts, of which the first and the last take longer (embedding, output
/// layer and loss), with one chunk, two chunks, and two chunks in V order.
SearchRequest heavy_ends(std::int64_t ranks, std::int64_t microbatches, double message_s) {
  SearchRequest request{.num_ranks = ranks, .num_microbatches = microbatches, .layouts = {}};
  for (const auto& [chunks, order] :
       {std::pair{1, ChunkOrder::loop}, {2, ChunkOrder::loop}, {2, ChunkOrder::v}}) {
    CostModel costs{.stages = {}, .message_s = message_s};
    for (std::int64_t stage = 0; stage < ranks * chunks; ++stage) {
      const std::int64_t part = stage / chunks;
      const double time = (part == 0           ? 1.3
                           : part == ranks - 1 ? 1.5
                                               : 1) /
                          chunks,
                   kept = 1.0 / chunks;
      costs.stages.push_back({time, time, time, kept, kept});
    }
    request.layouts.push_back({chunks, order, costs});
  }
  return request;
}

TEST(Search, BeatsTheBestFixedScheduleOnUnevenStages) {
  struct Case {
    std::int64_t ranks, microbatches;
    double limit, at_least_less;
  };
  for (const Case& it :
       {Case{4, 8, 0, 0.05}, {4, 16, 0, 0.08}, {8, 32, 0, 0.04}, {4, 16, 4, 0.02}}) {
    SearchRequest request = heavy_ends(it.ranks, it.microbatches, 0.2);
    request.activation_limit = it.limit;
    request.effort = 10'000'000;
    const ScheduleCandidate found = search_schedule(request);
    expect_right(found, request);
    const double fixed = best_fixed(request), less = 1 - found.makespan_s / fixed;
    EXPECT_GE(less, it.at_least_less);
    std::cout << it.ranks << " ranks, " << it.microbatches << " microbatches, limit " << it.limit
              << ": " << found.makespan_s << " against " << fixed << " of the best fixed schedule, "
              << 100 * less << " % less\n";
  }
}

TEST(Search, ReachesTheShortestPossibleWithoutALimit) {
  SearchRequest request = heavy_ends(4, 16, 0);
  request.effort = 10'000'000;
  const SearchLayout& layout = request.layouts[1];
  const Schedule shape{.num_ranks = 4, .num_chunks = 2, .num_microbatches = 16, .ranks = {}};
  EXPECT_LE(search_schedule(request).makespan_s, 1.02 * makespan_lower_bound(shape, layout.costs));
}

TEST(ShortestPossible, IsABoundThatOneForwardOneBackwardMeetsWhereTheLastStageIsSlowest) {
  const Schedule schedule = make_schedule({.name = "1f1b", .num_ranks = 3, .num_microbatches = 5});
  const CostModel costs{.stages = {{1, 1, 0}, {1, 1, 0}, {3, 3, 0}}, .message_s = 0.5};
  EXPECT_DOUBLE_EQ(makespan_lower_bound(schedule, costs), 3 + 30 + 3);
  EXPECT_DOUBLE_EQ(simulate(schedule, costs).makespan_s, 36);
}

TEST(Search, FindsTheShortestPossibleOnOneRankAndOnTwo) {
  SearchRequest request = uneven_request(1, 4, 1);
  EXPECT_DOUBLE_EQ(search_schedule(request).makespan_s, 4 * (3 * 4 + 3 + 0.5));
  // The second rank has the most to do. It starts as soon as the first forward arrives and never
  // waits.
  request = {.num_ranks = 2,
             .num_microbatches = 6,
             .layouts = {{1, ChunkOrder::loop, {.stages = {{1, 1, 1}, {2, 2, 2}}}}}};
  EXPECT_DOUBLE_EQ(search_schedule(request).makespan_s, 1 + 6 * 6);
}

TEST(Search, IsTheSameEachTime) {
  SearchRequest request = uneven_request(4, 8, 2, 0.1);
  request.effort = 1'000'000;
  EXPECT_EQ(search_schedule(request).schedule.ranks, search_schedule(request).schedule.ranks);
}

TEST(Search, NamesTheSmallestLimitThatWouldDo) {
  SearchRequest request = uneven_request(4, 8, 2);
  request.activation_limit = 0.5;
  try {
    search_schedule(request);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("--pipeline-activation-limit"));
    EXPECT_THAT(error.what(), testing::HasSubstr("use 1 or more"));
  }
  request.activation_limit = 1;
  request.effort = 1'000'000;
  expect_right(search_schedule(request), request);
}

TEST(Search, KeepsToALimitThatNoFixedScheduleMeets) {
  SearchRequest request = uneven_request(8, 16, 2);
  request.layouts.resize(1);
  request.activation_limit = 3;
  request.effort = 2'000'000;
  EXPECT_EQ(best_fixed(request), 1e300);
  const ScheduleCandidate found = search_schedule(request);
  expect_right(found, request);
  EXPECT_LT(found.total_bubble, 0.75) << "one microbatch at a time would be idle for 7/8";
}

TEST(Search, NeedsLittleMemoryAsTheVShapedSchedulesDo) {
  // V-Min of 2405.15362 has two thirds of 1F1B's idle time, here 21, with less than half its
  // memory.
  SearchRequest request{.num_ranks = 8, .num_microbatches = 32, .layouts = {}};
  const StageCost half{.forward_s = 0.5,
                       .backward_input_s = 0.5,
                       .backward_weight_s = 0.5,
                       .activation = 0.5,
                       .weight_gradient = 0.5};
  request.layouts = {{2, ChunkOrder::v, {.stages = std::vector<StageCost>(16, half)}}};
  request.activation_limit = 4;
  request.effort = 10'000'000;
  const ScheduleCandidate found = search_schedule(request);
  expect_right(found, request);
  EXPECT_LE(found.makespan_s, 3 * 32 + 2.0 / 3 * 21);
}

TEST(Search, SaysWhyAFixedScheduleIsNotPossible) {
  SearchRequest request = uneven_request(4, 8, 0);
  request.microbatch_group = 3;
  bool is_named = false;
  for (const ScheduleCandidate& candidate : fixed_candidates(request))
    is_named = is_named || !candidate.problem.empty();
  EXPECT_TRUE(is_named);
}

TEST(Search, PutsUpWithWeightGradientsThatKeepMoreThanTheForward) {
  SearchRequest request = uneven_request(4, 8, 1);
  for (SearchLayout& layout : request.layouts) {
    for (StageCost& stage : layout.costs.stages) stage.weight_gradient = 2 * stage.activation;
  }
  request.activation_limit = 4;
  request.effort = 1'000'000;
  expect_right(search_schedule(request), request);
}

TEST(FuseBackwards, JoinsBAndWWhereNobodyWaits) {
  const Schedule split{.name = "by hand",
                       .num_ranks = 2,
                       .num_microbatches = 1,
                       .ranks = {{{StepKind::forward, 0, 0},
                                  {StepKind::backward_input, 0, 0},
                                  {StepKind::backward_weight, 0, 0}},
                                 {{StepKind::forward, 0, 0},
                                  {StepKind::backward_input, 0, 0},
                                  {StepKind::backward_weight, 0, 0}}}};
  const Schedule whole = fuse_backwards(split, uniform_costs(split));
  EXPECT_EQ(whole.ranks[0].size(), 2u);
  EXPECT_EQ(whole.ranks[1].size(), 3u) << "the first rank waits for this B";
}

TEST(ImproveSchedule, ShortensAPoorSchedule) {
  const Schedule gpipe = make_schedule({.name = "gpipe", .num_ranks = 2, .num_microbatches = 4});
  const CostModel costs{.stages = {{2, 2, 2}, {1, 1, 1}}};
  const Schedule better = improve_schedule(gpipe, costs, 0, 2000);
  EXPECT_EQ(validate_schedule(with_messages(better)), std::nullopt);
  EXPECT_LT(simulate(better, costs).makespan_s, simulate(gpipe, costs).makespan_s);
}

}  // namespace
}  // namespace megatron
