#include "megatron/schedules/step_times.h"

#include <algorithm>
#include <array>
#include <limits>

namespace megatron {
namespace {

using Rank = std::vector<TimedStep>;

Rank computing(const Rank& steps) {
  Rank kept;
  std::ranges::copy_if(steps, std::back_inserter(kept), [](const TimedStep& timed) { return !is_message(timed.step.kind); });
  std::ranges::stable_sort(kept, {}, [](const TimedStep& timed) { return timed.span.begin_s; });
  return kept;
}

/// How long each of a rank's stretches computed. Where two overlap, each counts for half: together they are as long as the rank was busy.
std::vector<double> shares(const Rank& steps) {
  std::vector<double> seconds;
  for (const TimedStep& timed : steps) seconds.push_back(timed.span.end_s - timed.span.begin_s);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = i + 1; j < steps.size() && steps[j].span.begin_s < steps[i].span.end_s; ++j) {
      const double both = std::min(steps[i].span.end_s, steps[j].span.end_s) - steps[j].span.begin_s;
      seconds[i] -= both / 2;
      seconds[j] -= both / 2;
    }
  }
  return seconds;
}

/// Seconds of all steps of a stage, by kind.
struct StageSeconds {
  std::array<double, 4> of{};
  double operator[](StepKind kind) const { return of[static_cast<std::size_t>(kind)]; }
};

StageCost cost_of(const StageSeconds& seconds, double num_microbatches) {
  const double input = seconds[StepKind::backward_input], weight = seconds[StepKind::backward_weight];
  const double backward = (seconds[StepKind::backward] + input + weight) / num_microbatches;
  const double part = input + weight > 0 ? input / (input + weight) : 1;
  return {
      .forward_s = seconds[StepKind::forward] / num_microbatches, .backward_input_s = backward * part, .backward_weight_s = backward * (1 - part)};
}

}  // namespace

PipelineTimes pipeline_times(const StepTimes& ranks) {
  PipelineTimes times;
  double start = std::numeric_limits<double>::max(), end = 0;
  for (const Rank& rank : ranks) {
    const Rank steps = computing(rank);
    double busy = 0, last = 0;
    for (const double seconds : shares(steps)) busy += seconds;
    for (const TimedStep& timed : steps) last = std::max(last, timed.span.end_s);
    times.busy_s.push_back(busy);
    times.first_s.push_back(steps.empty() ? 0 : steps.front().span.begin_s);
    times.last_s.push_back(last);
    if (steps.empty()) continue;
    start = std::min(start, times.first_s.back());
    end = std::max(end, last);
  }
  if (end == 0) return times;
  for (double& first : times.first_s) first -= start;
  for (double& last : times.last_s) last -= start;
  times.makespan_s = end - start;
  return times;
}

CostModel mean_costs(const Schedule& schedule, const StepTimes& ranks) {
  std::vector<StageSeconds> stages(static_cast<std::size_t>(schedule.num_stages()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const Rank steps = computing(ranks[rank]);
    const std::vector<double> seconds = shares(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto stage = static_cast<std::size_t>(schedule.stage_of(static_cast<std::int64_t>(rank), steps[i].step.chunk));
      stages[stage].of[static_cast<std::size_t>(steps[i].step.kind)] += seconds[i];
    }
  }
  CostModel costs;
  for (const StageSeconds& stage : stages) costs.stages.push_back(cost_of(stage, static_cast<double>(schedule.num_microbatches)));
  return costs;
}

}  // namespace megatron
