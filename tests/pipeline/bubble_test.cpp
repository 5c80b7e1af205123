// On real ranks a schedule takes as long as in its simulation. A busy machine wakes ranks late, so
// a run that is too far from its simulation is repeated with longer steps, which reduce the effect.
// bench/pipelines measures on more ranks.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "megatron/schedules/make_schedule.h"
#include "megatron/schedules/messages.h"
#include "support/sleeping_pipeline.h"

namespace megatron {
namespace {

constexpr std::int64_t kRanks = 4, kMicrobatches = 8;
constexpr double kShortestStep = 0.012, kLongestStep = 0.100;  ///< seconds
constexpr double kPoints = 0.03;  ///< Tolerance of bubbles, and relative tolerance of the makespan.

Schedule schedule_of(const std::string& name) {
  const std::int64_t fixed = fixed_num_chunks(name);
  return with_messages(make_schedule({.name = name,
                                      .num_ranks = kRanks,
                                      .num_chunks = fixed > 0 ? fixed : 2,
                                      .num_microbatches = kMicrobatches}));
}

/// F, B and W of a whole rank take `step_s` each. Half of what F keeps is kept until W.
CostModel costs_of(const Schedule& schedule, double step_s) {
  const double seconds = step_s / static_cast<double>(schedule.num_chunks);
  return uniform_costs(schedule, {.forward_s = seconds,
                                  .backward_input_s = seconds,
                                  .backward_weight_s = seconds,
                                  .activation = 1,
                                  .weight_gradient = 0.5});
}

/// Returns the largest difference between a run and its simulation: in a rank's bubble, the total
/// bubble, or the makespan.
double distance(const PipelineTimes& measured, const PipelineTimes& simulated) {
  double most = std::max(std::abs(measured.total_bubble() - simulated.total_bubble()),
                         std::abs(measured.makespan_s / simulated.makespan_s - 1));
  for (std::int64_t rank = 0; rank < kRanks; ++rank)
    most = std::max(most, std::abs(measured.bubble(rank) - simulated.bubble(rank)));
  return most;
}

struct Outcome {
  Simulation simulated;
  SleepingRun run;
  double distance = 1;
};

Outcome first_close_run(const std::string& name) {
  const Schedule schedule = schedule_of(name);
  Outcome outcome;
  for (double step_s = kShortestStep; outcome.distance > kPoints && step_s < kLongestStep;
       step_s *= 2) {
    outcome.simulated = simulate(schedule, costs_of(schedule, step_s));
    outcome.run = run_sleeping(schedule, costs_of(schedule, step_s));
    outcome.distance = distance(outcome.run.times, outcome.simulated);
  }
  return outcome;
}

const Outcome& outcome_of(const std::string& name) {
  static std::map<std::string, Outcome> outcomes;
  const auto found = outcomes.find(name);
  return found != outcomes.end() ? found->second
                                 : outcomes.emplace(name, first_close_run(name)).first->second;
}

double measured_bubble(const std::string& name) {
  return outcome_of(name).run.times.total_bubble();
}

class BubbleOf : public testing::TestWithParam<std::string> {};

TEST_P(BubbleOf, IsTheSimulatorsAndSoIsMemory) {
  const Outcome& outcome = outcome_of(GetParam());
  EXPECT_LE(outcome.distance, kPoints) << "bubble " << outcome.run.times.total_bubble()
                                       << ", simulated " << outcome.simulated.total_bubble();
  EXPECT_EQ(outcome.run.peak_activation, outcome.simulated.peak_activation);
}

INSTANTIATE_TEST_SUITE_P(Schedules, BubbleOf, testing::ValuesIn(schedule_names()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(Bubble, OfZbVIsBelowAThirdOf1f1bs) {
  EXPECT_LT(measured_bubble("zb-v"), measured_bubble("1f1b") / 3);
}

/// Expects (p − 1) ÷ (v·m + p − 1) of the makespan (arXiv 2104.04473).
TEST(Bubble, OfInterleavedIsItsFormulas) {
  EXPECT_NEAR(measured_bubble("interleaved"), 3.0 / (2 * 8 + 3), kPoints);
}

}  // namespace
}  // namespace megatron
