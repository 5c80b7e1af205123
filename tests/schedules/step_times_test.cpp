#include "megatron/schedules/step_times.h"

#include <gtest/gtest.h>

#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"

namespace megatron {
namespace {

/// Returns the simulation as if it had been measured on a clock that starts at `start_s`.
StepTimes as_measured(const Schedule& schedule, const Simulation& run, double start_s) {
  StepTimes ranks;
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    ranks.emplace_back();
    for (std::size_t i = 0; i < schedule.ranks[rank].size(); ++i) {
      const StepSpan& span = run.spans[rank][i];
      ranks.back().push_back(
          {schedule.ranks[rank][i], {start_s + span.begin_s, start_s + span.end_s}});
    }
  }
  return ranks;
}

Schedule schedule_of(const std::string& name) {
  const std::int64_t fixed = fixed_num_chunks(name);
  return with_messages(make_schedule(
      {.name = name, .num_ranks = 4, .num_chunks = fixed > 0 ? fixed : 2, .num_microbatches = 8}));
}

/// Returns costs that differ between all stages, so that a mix-up is noticed.
CostModel uneven_costs(const Schedule& schedule) {
  CostModel costs = uniform_costs(schedule);
  for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
    const double number = static_cast<double>(stage);
    costs.stages[stage] = {.forward_s = 1 + number / 8,
                           .backward_input_s = 2 - number / 16,
                           .backward_weight_s = 0.5 + number / 32};
  }
  return costs;
}

TEST(StepTimes, AMeasuredSimulationIsTheSimulation) {
  for (const std::string& name : schedule_names()) {
    SCOPED_TRACE(name);
    const Schedule schedule = schedule_of(name);
    const Simulation expected = simulate(schedule, uneven_costs(schedule));
    const PipelineTimes times = pipeline_times(as_measured(schedule, expected, 1000));
    EXPECT_NEAR(times.makespan_s, expected.makespan_s, 1e-9);
    EXPECT_NEAR(times.total_bubble(), expected.total_bubble(), 1e-9);
    for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank)
      EXPECT_NEAR(times.bubble(rank), expected.bubble(rank), 1e-9);
  }
}

TEST(StepTimes, MeanCostsAreTheCosts) {
  for (const char* name : {"zb-h1", "zb-v", "interleaved", "gpipe"}) {
    SCOPED_TRACE(name);
    const Schedule schedule = schedule_of(name);
    const CostModel costs = uneven_costs(schedule);
    const CostModel found =
        mean_costs(schedule, as_measured(schedule, simulate(schedule, costs), 1000));
    ASSERT_EQ(found.stages.size(), costs.stages.size());
    const bool has_weight_steps = std::string(name).starts_with("zb");
    for (std::size_t stage = 0; stage < costs.stages.size(); ++stage) {
      const StageCost &expected = costs.stages[stage], &actual = found.stages[stage];
      EXPECT_NEAR(actual.forward_s, expected.forward_s, 1e-9);
      EXPECT_NEAR(actual.backward_input_s + actual.backward_weight_s,
                  expected.backward_input_s + expected.backward_weight_s, 1e-9);
      EXPECT_NEAR(actual.backward_weight_s, has_weight_steps ? expected.backward_weight_s : 0,
                  1e-9);
    }
  }
}

TEST(StepTimes, StepsThatTakeTurnsShareWhatTheyOverlap) {
  const Schedule schedule{.name = "by hand", .num_microbatches = 1, .ranks = {{}}};
  const StepTimes ranks = {{{{StepKind::recv_forward, 0, 0}, {8, 10}},
                            {{StepKind::forward, 0, 0}, {10, 14}},
                            {{StepKind::backward, 0, 0}, {12, 16}},
                            {{StepKind::forward, 0, 0}, {18, 19}}}};
  const PipelineTimes times = pipeline_times(ranks);
  EXPECT_DOUBLE_EQ(times.busy_s[0], 7) << "[10, 16] and [18, 19]";
  EXPECT_DOUBLE_EQ(times.makespan_s, 9) << "the wait before is no step";
  EXPECT_DOUBLE_EQ(times.bubble(0), 2.0 / 9);
  const CostModel costs = mean_costs(schedule, ranks);
  EXPECT_DOUBLE_EQ(costs.stages[0].forward_s, 2 + 2.0 / 3 + 1)
      << "alone, a third of what is shared, and later";
  EXPECT_DOUBLE_EQ(costs.stages[0].backward_input_s, 2 + 2 * 2.0 / 3);
  EXPECT_DOUBLE_EQ(seconds_by_kind(ranks[0]).backward, 2 + 2 * 2.0 / 3);
}

TEST(StepTimes, OfNothingIsNothing) {
  const PipelineTimes times = pipeline_times({{}, {}});
  EXPECT_EQ(times.makespan_s, 0);
  EXPECT_EQ(times.bubble(1), 0);
  EXPECT_EQ(times.total_bubble(), 0);
}

}  // namespace
}  // namespace megatron
