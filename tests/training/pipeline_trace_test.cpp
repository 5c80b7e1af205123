#include "megatron/training/observability/pipeline_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "megatron/base/json.h"
#include "megatron/config/logger_config.h"
#include "megatron/pipeline/trace/pipeline_report.h"
#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"

namespace megatron {
namespace {

using testing::HasSubstr;

constexpr double kClock = 12345;  ///< current time of rank 0's clock

Schedule schedule_of(std::int64_t num_microbatches) {
  return with_messages(
      make_schedule({.name = "zb-h1", .num_ranks = 4, .num_microbatches = num_microbatches}));
}

/// Two pipelines of four ranks. Every step takes as long as the costs predict; each receive waits
/// for one millisecond.
std::vector<RankTrace> simulated_ranks(const Schedule& schedule, const CostModel& costs) {
  const Simulation run = simulate(schedule, costs);
  std::vector<RankTrace> ranks;
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    RankTrace& trace = ranks.emplace_back(
        RankTrace{.rank = rank, .pp = rank / 2, .dp = rank % 2, .clock = {}, .iterations = {}});
    for (const std::int64_t iteration : {2, 3}) {
      TracedIteration& traced = trace.iterations.emplace_back();
      traced.iteration = iteration;
      traced.num_microbatches = schedule.num_microbatches;
      const auto at = static_cast<std::size_t>(trace.pp);
      for (std::size_t i = 0; i < schedule.ranks[at].size(); ++i) {
        const double start = kClock + 100 * static_cast<double>(iteration);
        TimedStep timed{schedule.ranks[at][i],
                        {start + run.spans[at][i].begin_s, start + run.spans[at][i].end_s}};
        if (is_message(timed.step.kind)) timed.span.begin_s -= 1e-3;
        traced.steps.push_back(timed);
      }
      traced.phases.push_back({"optimizer", {kClock + 190, kClock + 191}});
    }
  }
  return ranks;
}

class PipelineReportTest : public testing::Test {
 protected:
  PipelineReportTest() {
    for (std::size_t stage = 0; stage < costs_.stages.size(); ++stage)
      costs_.stages[stage].forward_s = 1 + static_cast<double>(stage) / 4;
    ranks_ = simulated_ranks(schedule_, costs_);
  }
  const Schedule schedule_ = schedule_of(8);
  const ScheduleProvider schedule_of_ = [this](std::int64_t) -> const Schedule& {
    return schedule_;
  };
  CostModel costs_ = uniform_costs(schedule_);
  std::vector<RankTrace> ranks_;
};

TEST_F(PipelineReportTest, OfASimulationIsAsPredicted) {
  const Simulation run = simulate(schedule_, costs_);
  const PipelineReport report = pipeline_report(ranks_, schedule_of_);
  EXPECT_NEAR(report.makespan_s, run.makespan_s, 1e-6);
  EXPECT_NEAR(report.predicted_makespan_s, run.makespan_s, 1e-6);
  EXPECT_NEAR(report.total_bubble, run.total_bubble(), 1e-6);
  EXPECT_NEAR(report.predicted_total_bubble, run.total_bubble(), 1e-6);
  ASSERT_EQ(report.stages.size(), 4u);
  ASSERT_EQ(report.world.size(), 8u);
  for (std::size_t pp = 0; pp < 4; ++pp) {
    const StageTimeBreakdown &stage = report.stages[pp], &rank = report.world[2 * pp + 1];
    EXPECT_NEAR(stage.forward_s, 8 * (1 + static_cast<double>(pp) / 4), 1e-6);
    EXPECT_NEAR(stage.backward_s, 8, 1e-6);
    EXPECT_NEAR(stage.weight_s, 8, 1e-6);
    EXPECT_NEAR(stage.busy_s, rank.busy_s, 1e-6);
    EXPECT_NEAR(stage.bubble(), run.bubble(static_cast<std::int64_t>(pp)), 1e-6);
    EXPECT_NEAR(rank.predicted_bubble(), run.bubble(static_cast<std::int64_t>(pp)), 1e-6);
  }
}

TEST_F(PipelineReportTest, TellsPeopleAndPrograms) {
  const PipelineReport report = pipeline_report(ranks_, schedule_of_);
  EXPECT_THAT(pipeline_table(report),
              HasSubstr("iterations 2-3: zb-h1, pipeline ranks: 4, microbatches: 8\n"));
  EXPECT_THAT(pipeline_table(report),
              HasSubstr("\n       3   14000.00    8000.00    8000.00   30000.00 "));
  const Json summary = parse_json(summary_json(report, ranks_), "summary");
  EXPECT_EQ(summary["by_rank"].size(), 8u);
  EXPECT_EQ(summary["by_rank"][5]["pp"], 2);
  EXPECT_EQ(summary["by_rank"][5]["dp"], 1);
  EXPECT_NEAR(summary["makespan_ms"].get<double>(), summary["predicted_makespan_ms"].get<double>(),
              1e-3);
}

TEST_F(PipelineReportTest, DrawsEveryRank) {
  const auto tracks = pipeline_tracks(ranks_, schedule_of_);
  std::vector<std::int64_t> computing;
  for (const TraceTrack& track : tracks) {
    if (track.thread == 0) computing.push_back(track.process);
  }
  EXPECT_THAT(computing, testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_EQ(tracks[0].process_name, "rank 0 (pp 0, dp 0, cp 0, tp 0)");
  EXPECT_EQ(tracks[0].spans.front().name, "F 0");
  EXPECT_EQ(tracks[0].spans.back().name, "optimizer");
}

TEST_F(PipelineReportTest, ARanksTextHoldsAllOfIt) {
  RankTrace rank = ranks_[5];
  rank.iterations[0].steps[0].posted_s = kClock + 0.125;
  rank.clock = {.seconds = 1.5, .accuracy = 0.25};
  const RankTrace copy = parse_rank_trace(serialize(rank));
  EXPECT_EQ(copy.pp, 2);
  EXPECT_EQ(copy.dp, 1);
  EXPECT_EQ(copy.clock.accuracy, 0.25);
  ASSERT_EQ(copy.iterations.size(), 2u);
  EXPECT_EQ(copy.iterations[1].iteration, 3);
  EXPECT_EQ(copy.iterations[0].phases[0].name, "optimizer");
  ASSERT_EQ(copy.iterations[0].steps.size(), rank.iterations[0].steps.size());
  for (std::size_t i = 0; i < rank.iterations[0].steps.size(); ++i) {
    const TimedStep &one = rank.iterations[0].steps[i], &other = copy.iterations[0].steps[i];
    EXPECT_TRUE(other.step.kind == one.step.kind && other.step.microbatch == one.step.microbatch &&
                other.step.chunk == one.step.chunk);
    EXPECT_EQ(other.span.begin_s, one.span.begin_s) << "every bit of it";
    EXPECT_EQ(other.span.end_s, one.span.end_s);
    EXPECT_EQ(other.posted_s, one.posted_s);
  }
}

TEST_F(PipelineReportTest, AnotherHostsTimesMoveToTheFirstClock) {
  RankTrace rank = ranks_[0];
  const double before = rank.iterations[0].steps[0].span.begin_s;
  rank.clock.seconds = 3;
  align_to_rank_0_clock(rank);
  EXPECT_DOUBLE_EQ(rank.iterations[0].steps[0].span.begin_s, before - 3);
  EXPECT_DOUBLE_EQ(rank.iterations[1].phases[0].span.end_s, kClock + 191 - 3);
}

TEST(ClockOffset, LiesBetweenTheBoundsOfEveryBarrier) {
  const double offset = 500;  // our clock is ahead
  const std::vector<BarrierTimes> theirs = {{10, 10.010}, {11, 11.004}};
  const std::vector<BarrierTimes> ours = {{offset + 10.002, offset + 10.011},
                                          {offset + 10.990, offset + 11.006}};
  const ClockOffset found = offset_between(ours, theirs);
  // Round 1: 10.002 − 10.010 ≤ offset − 500 ≤ 10.011 − 10; round 2: 10.990 − 11.004 ≤ … ≤ 11.006
  // − 11.
  EXPECT_NEAR(found.seconds, offset + (-0.008 + 0.006) / 2, 1e-9);
  EXPECT_NEAR(found.accuracy, (0.006 + 0.008) / 2, 1e-9);
}

TEST(TraceWindow, IsTheSecondAndThirdIterationUnlessChosen) {
  const auto window = [](const LoggerConfig& logger, std::int64_t done, std::int64_t train_iters) {
    const TraceWindow found = trace_window(logger, done, train_iters);
    return std::pair(found.begin, found.end);
  };
  EXPECT_EQ(window({}, 0, 100), std::pair(std::int64_t{1}, std::int64_t{3}));
  EXPECT_EQ(window({}, 40, 100), std::pair(std::int64_t{41}, std::int64_t{43})) << "of this run";
  EXPECT_EQ(window({}, 0, 1), std::pair(std::int64_t{0}, std::int64_t{2})) << "the only one";
  EXPECT_EQ(window({.profile = true}, 0, 100), std::pair(std::int64_t{10}, std::int64_t{12}));
  EXPECT_EQ(window({.profile_step_start = 20, .profile_step_end = 24}, 0, 100),
            std::pair(std::int64_t{20}, std::int64_t{24}));
}

}  // namespace
}  // namespace megatron
