#include "megatron/pipeline/trace/pipeline_report.h"

#include <algorithm>
#include <array>
#include <map>

#include "megatron/base/error.h"
#include "megatron/parallel/rank.h"

namespace megatron {
namespace {

/// The ranks of one pipeline in stage order.
using Pipeline = std::vector<const RankTrace*>;

std::vector<Pipeline> pipelines_of(const std::vector<RankTrace>& ranks) {
  std::map<std::array<std::int64_t, 3>, Pipeline> pipelines;
  for (const RankTrace& rank : ranks) pipelines[{rank.dp, rank.cp, rank.tp}].push_back(&rank);
  std::vector<Pipeline> result;
  for (auto& [place, pipeline] : pipelines) {
    std::ranges::sort(pipeline, {}, &RankTrace::pp);
    result.push_back(std::move(pipeline));
  }
  return result;
}

void add_steps(const std::vector<TimedStep>& steps, StageTimeBreakdown& share) {
  const KindSeconds seconds = seconds_by_kind(steps);
  share.forward_s = seconds.forward;
  share.backward_s = seconds.backward + seconds.backward_input;
  share.weight_s = seconds.backward_weight;
  for (const TimedStep& timed : steps) {
    if (is_message(timed.step.kind)) share.waited_s += timed.span.end_s - timed.span.begin_s;
  }
}

void add(const StageTimeBreakdown& share, double weight, StageTimeBreakdown& sum) {
  for (const auto member :
       {&StageTimeBreakdown::forward_s, &StageTimeBreakdown::backward_s,
        &StageTimeBreakdown::weight_s, &StageTimeBreakdown::busy_s, &StageTimeBreakdown::waited_s,
        &StageTimeBreakdown::length_s, &StageTimeBreakdown::predicted_busy_s,
        &StageTimeBreakdown::predicted_s})
    sum.*member += share.*member * weight;
}

/// Returns the time from the first begin to the last end of all ranks' computation in an iteration.
double makespan_of(const std::vector<RankTrace>& ranks, std::size_t iteration) {
  StepTimes all;
  for (const RankTrace& rank : ranks) all.push_back(rank.iterations[iteration].steps);
  return pipeline_times(all).makespan_s;
}

class ReportBuilder {
 public:
  ReportBuilder(const std::vector<RankTrace>& ranks, const ScheduleProvider& schedule_of)
      : ranks_(ranks), schedule_of_(schedule_of) {
    report_.world.resize(ranks.size());
  }

  PipelineReport make() {
    const std::vector<Pipeline> pipelines = pipelines_of(ranks_);
    const std::size_t num_iterations = ranks_.front().iterations.size();
    MEGATRON_CHECK(num_iterations > 0, "the report needs at least one iteration");
    weight_ = 1 / static_cast<double>(num_iterations);
    for (std::size_t i = 0; i < num_iterations; ++i) {
      double predicted = 0;
      for (const Pipeline& pipeline : pipelines)
        predicted = std::max(predicted, add_iteration(pipeline, i));
      report_.predicted_makespan_s += predicted * weight_;
      report_.makespan_s += makespan_of(ranks_, i) * weight_;
    }
    finish(pipelines);
    return std::move(report_);
  }

 private:
  /// Adds one iteration of a pipeline and returns its simulated makespan.
  double add_iteration(const Pipeline& pipeline, std::size_t i) {
    StepTimes steps;
    for (const RankTrace* rank : pipeline) steps.push_back(rank->iterations[i].steps);
    const Schedule& schedule = schedule_of_(pipeline.front()->iterations[i].num_microbatches);
    const PipelineTimes measured = pipeline_times(steps);
    const Simulation predicted = simulate(schedule, mean_costs(schedule, steps));
    for (std::size_t stage = 0; stage < pipeline.size(); ++stage) {
      StageTimeBreakdown share{.busy_s = measured.busy_s[stage],
                               .length_s = measured.makespan_s,
                               .predicted_busy_s = predicted.busy_s[stage],
                               .predicted_s = predicted.makespan_s};
      add_steps(steps[stage], share);
      add(share, weight_, report_.world[static_cast<std::size_t>(pipeline[stage]->rank)]);
      busy_s_ += share.busy_s;
      predicted_busy_s_ += share.predicted_busy_s;
    }
    const double ranks = static_cast<double>(pipeline.size());
    space_s_ += measured.makespan_s * ranks;
    predicted_space_s_ += predicted.makespan_s * ranks;
    return predicted.makespan_s;
  }

  void finish(const std::vector<Pipeline>& pipelines) {
    const RankTrace& first = ranks_.front();
    const Schedule& schedule = schedule_of_(first.iterations.back().num_microbatches);
    report_.schedule = schedule.name;
    report_.num_ranks = schedule.num_ranks;
    report_.num_chunks = schedule.num_chunks;
    report_.num_microbatches = schedule.num_microbatches;
    report_.first_iteration = first.iterations.front().iteration;
    report_.last_iteration = first.iterations.back().iteration;
    for (const RankTrace& rank : ranks_)
      report_.clock_accuracy_s = std::max(report_.clock_accuracy_s, rank.clock.accuracy);
    report_.total_bubble = space_s_ > 0 ? 1 - busy_s_ / space_s_ : 0;
    report_.predicted_total_bubble =
        predicted_space_s_ > 0 ? 1 - predicted_busy_s_ / predicted_space_s_ : 0;
    report_.stages.resize(static_cast<std::size_t>(schedule.num_ranks));
    for (const Pipeline& pipeline : pipelines) {
      for (std::size_t stage = 0; stage < pipeline.size(); ++stage)
        add(report_.world[static_cast<std::size_t>(pipeline[stage]->rank)],
            1 / static_cast<double>(pipelines.size()), report_.stages[stage]);
    }
  }

  const std::vector<RankTrace>& ranks_;
  const ScheduleProvider& schedule_of_;
  PipelineReport report_;
  double weight_ = 1;
  double busy_s_ = 0, space_s_ = 0, predicted_busy_s_ = 0, predicted_space_s_ = 0;
};

}  // namespace

PipelineReport pipeline_report(const std::vector<RankTrace>& ranks,
                               const ScheduleProvider& schedule_of) {
  return ReportBuilder(ranks, schedule_of).make();
}

}  // namespace megatron
