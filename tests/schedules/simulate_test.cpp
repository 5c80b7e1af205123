#include "megatron/schedules/simulate.h"

#include <gtest/gtest.h>

#include <random>

#include "megatron/base/error.h"
#include "megatron/schedules/make_schedule.h"

namespace megatron {
namespace {

constexpr ScheduleStep F(std::int32_t microbatch, std::int32_t chunk = 0) {
  return {StepKind::forward, microbatch, chunk};
}
constexpr ScheduleStep BW(std::int32_t microbatch, std::int32_t chunk = 0) {
  return {StepKind::backward, microbatch, chunk};
}
constexpr ScheduleStep B(std::int32_t microbatch, std::int32_t chunk = 0) {
  return {StepKind::backward_input, microbatch, chunk};
}
constexpr ScheduleStep W(std::int32_t microbatch, std::int32_t chunk = 0) {
  return {StepKind::backward_weight, microbatch, chunk};
}
constexpr ScheduleStep joined(ScheduleStep step) {
  return {step.kind, step.microbatch, step.chunk, true};
}

Schedule table(std::vector<std::vector<ScheduleStep>> ranks, std::int64_t microbatches,
               std::int64_t chunks = 1, ChunkOrder order = ChunkOrder::loop) {
  Schedule schedule{.name = "by hand",
                    .num_chunks = chunks,
                    .num_microbatches = microbatches,
                    .order = order,
                    .ranks = std::move(ranks)};
  schedule.num_ranks = static_cast<std::int64_t>(schedule.ranks.size());
  return schedule;
}

/// Returns a schedule that alternates forward and backward after enough forwards to fill the
/// pipeline.
Schedule one_forward_one_backward(std::int32_t ranks, std::int32_t microbatches) {
  std::vector<std::vector<ScheduleStep>> steps(static_cast<std::size_t>(ranks));
  for (std::int32_t rank = 0; rank < ranks; ++rank) {
    auto& list = steps[static_cast<std::size_t>(rank)];
    const std::int32_t warmup = std::min(ranks - 1 - rank, microbatches);
    for (std::int32_t i = 0; i < warmup; ++i) list.push_back(F(i));
    for (std::int32_t i = 0; i < microbatches; ++i) {
      if (i + warmup < microbatches) list.push_back(F(i + warmup));
      list.push_back(BW(i));
    }
  }
  return table(std::move(steps), microbatches);
}

TEST(Simulate, OneRankIsNeverIdle) {
  const Schedule schedule = table({{F(0), BW(0), F(1), BW(1)}}, 2);
  const Simulation run = simulate(
      schedule,
      uniform_costs(schedule, {.forward_s = 1, .backward_input_s = 2, .backward_weight_s = 3}));
  EXPECT_EQ(run.makespan_s, 12);
  EXPECT_EQ(run.bubble(0), 0);
  EXPECT_EQ(run.total_bubble(), 0);
  EXPECT_EQ(run.peak_activation[0], 1);
  EXPECT_EQ(run.spans[0][3].begin_s, 7);
  EXPECT_EQ(run.spans[0][3].end_s, 12);
}

TEST(Simulate, OneForwardOneBackwardAsItsFormula) {
  for (const std::int32_t p : {2, 3, 4, 8}) {
    for (const std::int32_t m : {8, 16, 33}) {
      const Schedule schedule = one_forward_one_backward(p, m);
      const StageCost cost{
          .forward_s = 1, .backward_input_s = 1.5, .backward_weight_s = 0.75, .activation = 2};
      const Simulation run = simulate(schedule, uniform_costs(schedule, cost));
      const double stage = 1 + 1.5 + 0.75;
      EXPECT_DOUBLE_EQ(run.makespan_s, (m + p - 1) * stage);
      EXPECT_NEAR(run.total_bubble(), (p - 1.0) / (m + p - 1.0), 1e-12);
      for (std::int32_t rank = 0; rank < p; ++rank) {
        const auto at = static_cast<std::size_t>(rank);
        EXPECT_DOUBLE_EQ(run.busy_s[at], m * stage);
        EXPECT_DOUBLE_EQ(run.peak_activation[at], 2.0 * (p - rank));
        EXPECT_DOUBLE_EQ(run.first_s[at], rank) << "forwards come down one by one";
      }
    }
  }
}

TEST(Simulate, MessagesTakeTimeBetweenRanksOnly) {
  const Schedule schedule = table({{F(0), BW(0)}, {F(0), BW(0)}, {F(0), BW(0)}}, 1);
  EXPECT_DOUBLE_EQ(simulate(schedule, uniform_costs(schedule, {}, 0.25)).makespan_s, 9 + 4 * 0.25);
  const Schedule v = table({{F(0, 0), F(0, 1), BW(0, 1), BW(0, 0)}}, 1, 2);
  EXPECT_DOUBLE_EQ(simulate(v, uniform_costs(v, {}, 0.25)).makespan_s, 6);
}

TEST(Simulate, TheTurnOfAVNeedsNoMessage) {
  const Schedule schedule =
      table({{F(0, 0), F(0, 1), BW(0, 1), BW(0, 0)}, {F(0, 0), F(0, 1), BW(0, 1), BW(0, 0)}}, 1, 2,
            ChunkOrder::v);
  const Simulation run = simulate(schedule, uniform_costs(schedule, {}, 10));
  EXPECT_DOUBLE_EQ(run.makespan_s, 4 * 3 + 4 * 10);
  EXPECT_DOUBLE_EQ(run.spans[1][1].begin_s, run.spans[1][0].end_s);
}

TEST(Simulate, WeightGradientsFillTheWait) {
  const Schedule schedule =
      table({{F(0), F(1), B(0), B(1), W(0), W(1)}, {F(0), B(0), F(1), B(1), W(0), W(1)}}, 2);
  const Simulation run = simulate(schedule, uniform_costs(schedule));
  EXPECT_DOUBLE_EQ(run.makespan_s, 8);
  EXPECT_DOUBLE_EQ(run.spans[0][2].begin_s, 3) << "as soon as the last stage's B is there";
  EXPECT_DOUBLE_EQ(run.busy_s[0], 6);
  EXPECT_DOUBLE_EQ(run.bubble(0), 1 - 6.0 / 8);
}

TEST(Simulate, ActivationsShrinkWithBAndGoWithW) {
  const Schedule schedule = table({{F(0), B(0), F(1), B(1), W(0), W(1)}}, 2);
  const auto peak = [&](double kept) {
    return simulate(schedule, uniform_costs(schedule, {.activation = 4, .weight_gradient = kept}))
        .peak_activation[0];
  };
  EXPECT_DOUBLE_EQ(peak(1), 5);
  EXPECT_DOUBLE_EQ(peak(4), 8);
  EXPECT_DOUBLE_EQ(peak(6), 12) << "what W needs may be more than what B needs";
}

TEST(Simulate, JoinedStepsBeginAndEndTogether) {
  const Schedule schedule = table({{F(0), joined(F(1)), BW(0), BW(1)}}, 2);
  CostModel costs = uniform_costs(schedule);
  costs.joined = 0.75;
  const Simulation run = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(run.spans[0][1].begin_s, 1);
  EXPECT_DOUBLE_EQ(run.spans[0][1].end_s, 1 + 0.75 * 3);
  EXPECT_DOUBLE_EQ(run.spans[0][2].begin_s, 1);
  EXPECT_DOUBLE_EQ(run.spans[0][2].end_s, 1 + 0.75 * 3);
  EXPECT_DOUBLE_EQ(run.makespan_s, 1 + 0.75 * 3 + 2);
  EXPECT_DOUBLE_EQ(run.busy_s[0], run.makespan_s);
}

TEST(Simulate, AJoinedPairWaitsForBoth) {
  const ScheduleStep recv{StepKind::recv_backward, 0, 0};
  const Schedule schedule =
      table({{F(0), joined(F(1)), recv, BW(0), BW(1)}, {F(0), BW(0), F(1), BW(1)}}, 2);
  const Simulation run = simulate(schedule, uniform_costs(schedule));
  EXPECT_DOUBLE_EQ(run.spans[0][1].begin_s, 4) << "when the other rank's backward is done";
  EXPECT_DOUBLE_EQ(run.makespan_s, 4 + 3 + 1 + 2 + 2);
}

TEST(Simulate, MessagesArePostedWithoutTime) {
  const ScheduleStep send{StepKind::send_forward, 0, 0}, recv{StepKind::recv_forward, 0, 0};
  const Schedule schedule = table({{F(0), send, BW(0)}, {recv, F(0), BW(0)}}, 1);
  const Simulation run = simulate(schedule, uniform_costs(schedule, {}, 0.5));
  EXPECT_DOUBLE_EQ(run.spans[0][1].begin_s, 1);
  EXPECT_DOUBLE_EQ(run.spans[0][1].end_s, 1);
  EXPECT_DOUBLE_EQ(run.spans[1][0].begin_s, 0);
  EXPECT_DOUBLE_EQ(run.spans[1][1].begin_s, 1.5);
}

TEST(Simulate, ForwardOnlyKeepsNothing) {
  const Schedule schedule = table({{F(0), F(1), F(2)}}, 3);
  EXPECT_DOUBLE_EQ(simulate(schedule, uniform_costs(schedule)).peak_activation[0], 1);
}

TEST(Simulate, UnevenStagesWaitForTheSlowest) {
  Schedule schedule = one_forward_one_backward(2, 3);
  CostModel costs = uniform_costs(schedule);
  costs.stages[1] = {.forward_s = 2, .backward_input_s = 2, .backward_weight_s = 2};
  const Simulation run = simulate(schedule, costs);
  EXPECT_DOUBLE_EQ(run.makespan_s, 1 + 3 * 6 + 2) << "the last stage runs through";
  EXPECT_DOUBLE_EQ(run.bubble(1), 1 - 18.0 / 21)
      << "it waits for the first forward and the last backward of the other";
}

TEST(Simulate, RefusesATableThatNeverEnds) {
  const Schedule schedule = table({{BW(0), F(0)}}, 1);
  EXPECT_THROW(simulate(schedule, uniform_costs(schedule)), InternalError);
}

/// Returns the ends of all steps as longest paths, relaxed until nothing changes. It is slow but
/// simple enough to be trusted.
std::vector<std::vector<double>> ends_by_relaxation(const Schedule& schedule,
                                                    const CostModel& costs) {
  std::vector<std::vector<double>> ends;
  for (const auto& steps : schedule.ranks) ends.emplace_back(steps.size(), 0);
  const auto stage = [&](std::size_t rank, const ScheduleStep& step) {
    return schedule.stage_of(static_cast<std::int64_t>(rank), step.chunk);
  };
  const auto is_backward = [](const ScheduleStep& step) {
    return step.kind == StepKind::backward || step.kind == StepKind::backward_input;
  };
  const auto is_source = [&](const ScheduleStep& from, std::int64_t from_stage,
                             const ScheduleStep& to, std::int64_t to_stage) {
    if (from.microbatch != to.microbatch) return false;
    if (to.kind == StepKind::forward)
      return from.kind == StepKind::forward && from_stage == to_stage - 1;
    return is_backward(to) && is_backward(from) && from_stage == to_stage + 1;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      for (std::size_t i = 0; i < ends[rank].size(); ++i) {
        const ScheduleStep& step = schedule.ranks[rank][i];
        double begin = i > 0 ? ends[rank][i - 1] : 0;
        for (std::size_t other = 0; other < ends.size(); ++other) {
          for (std::size_t j = 0; j < ends[other].size(); ++j) {
            if (is_source(schedule.ranks[other][j], stage(other, schedule.ranks[other][j]), step,
                          stage(rank, step)))
              begin = std::max(begin, ends[other][j] + (other == rank ? 0 : costs.message_s));
          }
        }
        const StageCost& cost = costs.stages[static_cast<std::size_t>(stage(rank, step))];
        const double time = step.kind == StepKind::forward          ? cost.forward_s
                            : step.kind == StepKind::backward_input ? cost.backward_input_s
                            : step.kind == StepKind::backward_weight
                                ? cost.backward_weight_s
                                : cost.backward_input_s + cost.backward_weight_s;
        changed = changed || begin + time > ends[rank][i] + 1e-9;
        ends[rank][i] = std::max(ends[rank][i], begin + time);
      }
    }
  }
  return ends;
}

TEST(Simulate, EndsEachStepAfterTheLongestWayToIt) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> time(0.1, 3);
  for (const char* name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"}) {
    const std::int64_t chunks = fixed_num_chunks(name) == 0 ? 3 : fixed_num_chunks(name);
    const Schedule schedule =
        make_schedule({.name = name, .num_ranks = 3, .num_chunks = chunks, .num_microbatches = 5});
    CostModel costs = uniform_costs(schedule, {}, time(random));
    for (StageCost& stage : costs.stages) stage = {time(random), time(random), time(random)};
    const Simulation run = simulate(schedule, costs);
    const auto ends = ends_by_relaxation(schedule, costs);
    for (std::size_t rank = 0; rank < ends.size(); ++rank) {
      for (std::size_t i = 0; i < ends[rank].size(); ++i)
        EXPECT_NEAR(run.spans[rank][i].end_s, ends[rank][i], 1e-9) << name << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace megatron
