
#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/parallel/rank.h"
#include "megatron/pipeline/trace/pipeline_report.h"
#include "megatron/schedules/timeline.h"

namespace megatron {
namespace {

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
