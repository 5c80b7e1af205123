#include "megatron/schedules/timeline.h"

#include <cmath>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

const char* category_of(StepKind kind) {
  switch (kind) {
    case StepKind::forward:
      return "forward";
    case StepKind::backward:
      return "backward";
    case StepKind::backward_input:
      return "input gradients";
    case StepKind::backward_weight:
      return "weight gradients";
    default:
      return "message";
  }
}

TraceSpan span_of(const Schedule& schedule, std::int64_t rank, const ScheduleStep& step, const StepSpan& span) {
  const std::int64_t begin_ns = nanoseconds(span.begin_s);
  return {
      .name = label_of(schedule, step),
      .category = category_of(step.kind),
      .begin_ns = begin_ns,
      .duration_ns = nanoseconds(span.end_s) - begin_ns,
      .args = {{"microbatch", std::int64_t{step.microbatch}}, {"chunk", std::int64_t{step.chunk}}, {"stage", schedule.stage_of(rank, step.chunk)}}};
}

/// Puts the span on the first track that is free by then.
void add_message(std::vector<TraceTrack>& tracks, std::int64_t rank, TraceSpan span) {
  for (TraceTrack& track : tracks) {
    if (track.spans.back().begin_ns + track.spans.back().duration_ns <= span.begin_ns) return track.spans.push_back(std::move(span));
  }
  tracks.push_back({.process = rank, .thread = static_cast<std::int64_t>(tracks.size()) + 1, .process_name = {}, .thread_name = "messages"});
  tracks.back().spans.push_back(std::move(span));
}

}  // namespace

std::string label_of(const Schedule& schedule, const ScheduleStep& step) {
  std::string label = std::string(name_of(step.kind)) + " " + std::to_string(step.microbatch);
  if (schedule.num_chunks > 1) label += "." + std::to_string(step.chunk);
  return label;
}

std::vector<TraceTrack> timeline(const Schedule& schedule, const std::vector<std::vector<StepSpan>>& spans) {
  std::vector<TraceTrack> tracks;
  for (std::size_t r = 0; r < schedule.ranks.size(); ++r) {
    const auto& steps = schedule.ranks[r];
    const auto rank = static_cast<std::int64_t>(r);
    MEGATRON_CHECK(spans.size() == schedule.ranks.size() && spans[r].size() == steps.size(), "times of other steps than the schedule's");
    TraceTrack computing{.process = rank, .process_name = "rank " + std::to_string(r), .thread_name = "computing", .spans = {}};
    std::vector<TraceTrack> messages;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      TraceSpan span = span_of(schedule, rank, steps[i], spans[r][i]);
      if (!is_message(steps[i].kind)) {
        computing.spans.push_back(std::move(span));
      } else if (span.duration_ns > 0) {
        add_message(messages, rank, std::move(span));
      }
    }
    tracks.push_back(std::move(computing));
    for (TraceTrack& track : messages) tracks.push_back(std::move(track));
  }
  return tracks;
}

}  // namespace megatron
