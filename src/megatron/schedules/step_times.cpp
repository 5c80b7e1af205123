#include "megatron/schedules/step_times.h"

#include <algorithm>
#include <limits>

namespace megatron {
namespace {

using RankTimes = std::vector<TimedStep>;

RankTimes computing(const RankTimes& steps) {
  RankTimes kept;
  std::ranges::copy_if(steps, std::back_inserter(kept),
                       [](const TimedStep& timed) { return !is_message(timed.step.kind); });
  std::ranges::stable_sort(kept, {}, [](const TimedStep& timed) { return timed.span.begin_s; });
  return kept;
}

double weight_of(StepKind kind) { return kind == StepKind::backward ? 2 : 1; }

/// Returns the computing time of each of a rank's spans. Overlapping time is divided between two
/// spans, so that the sum is the rank's busy time.
std::vector<double> shares(const RankTimes& steps) {
  std::vector<double> seconds;
  for (const TimedStep& timed : steps) seconds.push_back(timed.span.end_s - timed.span.begin_s);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (std::size_t j = i + 1; j < steps.size() && steps[j].span.begin_s < steps[i].span.end_s;
         ++j) {
      const double both =
          std::min(steps[i].span.end_s, steps[j].span.end_s) - steps[j].span.begin_s;
      const double first = weight_of(steps[i].step.kind), second = weight_of(steps[j].step.kind);
      seconds[i] -= both * second / (first + second);
      seconds[j] -= both * first / (first + second);
    }
  }
  return seconds;
}

void add(StepKind kind, double seconds, KindSeconds& sum) {
  switch (kind) {
    case StepKind::forward:
      sum.forward += seconds;
      break;
    case StepKind::backward:
      sum.backward += seconds;
      break;
    case StepKind::backward_input:
      sum.backward_input += seconds;
      break;
    default:
      sum.backward_weight += seconds;
  }
}

StageCost cost_of(const KindSeconds& seconds, double num_microbatches) {
  const double split = seconds.backward_input + seconds.backward_weight;
  const double backward = (seconds.backward + split) / num_microbatches;
  const double part = split > 0 ? seconds.backward_input / split : 1;
  return {.forward_s = seconds.forward / num_microbatches,
          .backward_input_s = backward * part,
          .backward_weight_s = backward * (1 - part)};
}

}  // namespace

PipelineTimes pipeline_times(const StepTimes& ranks) {
  PipelineTimes times;
  double start = std::numeric_limits<double>::max(), end = 0;
  for (const RankTimes& rank : ranks) {
    const RankTimes steps = computing(rank);
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

KindSeconds seconds_by_kind(const RankTimes& rank) {
  const RankTimes steps = computing(rank);
  const std::vector<double> seconds = shares(steps);
  KindSeconds sum;
  for (std::size_t i = 0; i < steps.size(); ++i) add(steps[i].step.kind, seconds[i], sum);
  return sum;
}

CostModel mean_costs(const Schedule& schedule, const StepTimes& ranks) {
  std::vector<KindSeconds> stages(static_cast<std::size_t>(schedule.num_stages()));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const RankTimes steps = computing(ranks[rank]);
    const std::vector<double> seconds = shares(steps);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto stage = static_cast<std::size_t>(
          schedule.stage_of(static_cast<std::int64_t>(rank), steps[i].step.chunk));
      add(steps[i].step.kind, seconds[i], stages[stage]);
    }
  }
  CostModel costs;
  for (const KindSeconds& stage : stages)
    costs.stages.push_back(cost_of(stage, static_cast<double>(schedule.num_microbatches)));
  return costs;
}

}  // namespace megatron
