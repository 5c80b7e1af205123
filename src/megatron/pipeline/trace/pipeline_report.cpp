#include "megatron/pipeline/trace/pipeline_report.h"

#include <algorithm>
#include <array>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/schedules/timeline.h"

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

constexpr double kMs = 1e3;

std::string heading(const PipelineReport& report) {
  const auto number = [](std::int64_t count) { return std::to_string(count); };
  std::string text = " pipeline in iteration" +
                     std::string(report.last_iteration > report.first_iteration ? "s " : " ") +
                     number(report.first_iteration);
  if (report.last_iteration > report.first_iteration) text += "-" + number(report.last_iteration);
  text += ": " + report.schedule + ", pipeline ranks: " + number(report.num_ranks);
  if (report.num_chunks > 1) text += ", chunks of each: " + number(report.num_chunks);
  return text + ", microbatches: " + number(report.num_microbatches);
}

std::string row(const std::string& name, const StageTimeBreakdown& share) {
  return format("\n  %6s %10.2f %10.2f %10.2f %10.2f %10.2f %9.1f%% %10.1f%%", name.c_str(),
                share.forward_s * kMs, share.backward_s * kMs, share.weight_s * kMs,
                share.busy_s * kMs, share.waited_s * kMs, 100 * share.bubble(),
                100 * share.predicted_bubble());
}

JsonText json_of(const StageTimeBreakdown& share) {
  return {{"forward_ms", share.forward_s * kMs},         {"backward_ms", share.backward_s * kMs},
          {"weight_gradient_ms", share.weight_s * kMs},  {"busy_ms", share.busy_s * kMs},
          {"waited_ms", share.waited_s * kMs},           {"bubble", share.bubble()},
          {"predicted_bubble", share.predicted_bubble()}};
}

JsonText world_json(const PipelineReport& report, const std::vector<RankTrace>& ranks) {
  JsonText rows = JsonText::array();
  for (const RankTrace& rank : ranks) {
    JsonText one{
        {"rank", rank.rank}, {"pp", rank.pp}, {"dp", rank.dp}, {"cp", rank.cp}, {"tp", rank.tp}};
    one.update(json_of(report.world[static_cast<std::size_t>(rank.rank)]));
    rows.push_back(std::move(one));
  }
  return rows;
}

JsonText json_of(const ContextReport& context) {
  JsonText rows = JsonText::array();
  for (const ContextTimes& times : context.ranks)
    rows.push_back({{"rank", times.rank},
                    {"cp", times.cp},
                    {"attention_ms", times.attention_s * kMs},
                    {"exposed_ms", times.exposed_s * kMs},
                    {"simulated_exposed_ms", times.simulated_exposed_s * kMs}});
  return {{"message_bytes", context.message_bytes},
          {"link_bytes_per_s", context.link.bytes_per_s},
          {"link_latency_ms", context.link.latency_s * kMs},
          {"by_rank", rows}};
}

std::string process_name(const RankTrace& rank) {
  const auto number = [](std::int64_t count) { return std::to_string(count); };
  return "rank " + number(rank.rank) + " (pp " + number(rank.pp) + ", dp " + number(rank.dp) +
         ", cp " + number(rank.cp) + ", tp " + number(rank.tp) + ")";
}

TraceSpan span_of(const TracedPhase& phase) {
  const auto nanoseconds = [](double seconds) { return static_cast<std::int64_t>(seconds * 1e9); };
  const std::int64_t begin_ns = nanoseconds(phase.span.begin_s);
  return {.name = phase.name,
          .category = "phase",
          .begin_ns = begin_ns,
          .duration_ns = nanoseconds(phase.span.end_s) - begin_ns};
}

std::vector<TraceTrack> pipeline_tracks(const RankTrace& rank, const Schedule& schedule) {
  StepTimes steps(static_cast<std::size_t>(schedule.num_ranks));
  auto& mine = steps[static_cast<std::size_t>(rank.pp)];
  for (const TracedIteration& iteration : rank.iterations)
    mine.insert(mine.end(), iteration.steps.begin(), iteration.steps.end());
  std::vector<TraceTrack> tracks;
  for (TraceTrack& track : timeline(schedule, steps)) {
    if (track.process != rank.pp) continue;
    const bool computes = !track.process_name.empty();
    track.process = rank.rank;
    if (computes) track.process_name = process_name(rank);
    for (const TracedIteration& iteration : rank.iterations) {
      for (const TracedPhase& phase : iteration.phases) {
        if (computes) track.spans.push_back(span_of(phase));
      }
    }
    tracks.push_back(std::move(track));
  }
  for (TraceTrack& track : activity_tracks(rank, static_cast<std::int64_t>(tracks.size())))
    tracks.push_back(std::move(track));
  return tracks;
}

}  // namespace

PipelineReport pipeline_report(const std::vector<RankTrace>& ranks,
                               const ScheduleProvider& schedule_of) {
  return ReportBuilder(ranks, schedule_of).make();
}

std::string pipeline_table(const PipelineReport& report) {
  std::string text = heading(report);
  text += format("\n  %6s %10s %10s %10s %10s %10s %10s %11s", "rank", "F ms", "B ms", "W ms",
                 "busy ms", "waited ms", "bubble", "predicted");
  for (std::size_t rank = 0; rank < report.stages.size(); ++rank)
    text += row(std::to_string(rank), report.stages[rank]);
  text += format("\n  %6s %54s %9.1f%% %10.1f%%", "all", "", 100 * report.total_bubble,
                 100 * report.predicted_total_bubble);
  text += format("\n  makespan %.2f ms, predicted %.2f ms", report.makespan_s * kMs,
                 report.predicted_makespan_s * kMs);
  if (report.clock_accuracy_s > 0)
    text += format("; clocks of several hosts, aligned to ±%.3f ms", report.clock_accuracy_s * kMs);
  return text;
}

std::string summary_json(const PipelineReport& report, const std::vector<RankTrace>& ranks,
                         const std::optional<ContextReport>& context) {
  JsonText stages = JsonText::array();
  for (const StageTimeBreakdown& share : report.stages) stages.push_back(json_of(share));
  JsonText json{{"schedule", report.schedule},
                {"pipeline_ranks", report.num_ranks},
                {"chunks", report.num_chunks},
                {"microbatches", report.num_microbatches},
                {"first_iteration", report.first_iteration},
                {"last_iteration", report.last_iteration},
                {"clock_accuracy_ms", report.clock_accuracy_s * kMs},
                {"makespan_ms", report.makespan_s * kMs},
                {"predicted_makespan_ms", report.predicted_makespan_s * kMs},
                {"bubble", report.total_bubble},
                {"predicted_bubble", report.predicted_total_bubble},
                {"by_pipeline_rank", stages},
                {"by_rank", world_json(report, ranks)}};
  if (context) json["context_parallelism"] = json_of(*context);
  return json.dump(2) + "\n";
}

std::vector<TraceTrack> pipeline_tracks(const std::vector<RankTrace>& ranks,
                                        const ScheduleProvider& schedule_of) {
  std::vector<TraceTrack> tracks;
  for (const RankTrace& rank : ranks) {
    for (TraceTrack& track :
         pipeline_tracks(rank, schedule_of(rank.iterations.back().num_microbatches)))
      tracks.push_back(std::move(track));
  }
  return tracks;
}

}  // namespace megatron
