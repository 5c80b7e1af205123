#include "megatron/schedules/timeline.h"

#include <cmath>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

TraceSpan span_of(const Schedule& schedule, std::int64_t rank, const TimedStep& timed) {
  const ScheduleStep& step = timed.step;
  const std::int64_t begin_ns = nanoseconds(timed.span.begin_s);
  TraceSpan span{.name = label_of(schedule, step),
                 .category = description_of(step.kind),
                 .begin_ns = begin_ns,
                 .duration_ns = nanoseconds(timed.span.end_s) - begin_ns,
                 .args = {{"microbatch", std::int64_t{step.microbatch}},
                          {"chunk", std::int64_t{step.chunk}},
                          {"stage", schedule.stage_of(rank, step.chunk)}}};
  if (timed.posted_s)
    span.args.emplace_back("posted_us_before", (timed.span.begin_s - *timed.posted_s) * 1e6);
  return span;
}

/// Returns the track that is free at `begin_ns`; a new one like `first` if there is none.
TraceTrack& free_track(std::vector<TraceTrack>& tracks, std::size_t from, std::int64_t begin_ns,
                       const TraceTrack& first) {
  for (std::size_t i = from; i < tracks.size(); ++i) {
    const TraceSpan& last = tracks[i].spans.back();
    if (last.begin_ns + last.duration_ns <= begin_ns) return tracks[i];
  }
  TraceTrack& track = tracks.emplace_back(first);
  track.thread += static_cast<std::int64_t>(tracks.size() - 1 - from);
  return track;
}

}  // namespace

void add_to_free_tracks(std::vector<TraceSpan> spans, const TraceTrack& first,
                        std::vector<TraceTrack>& tracks) {
  const std::size_t from = tracks.size();
  for (TraceSpan& span : spans)
    free_track(tracks, from, span.begin_ns, first).spans.push_back(std::move(span));
}

std::string label_of(const Schedule& schedule, const ScheduleStep& step) {
  std::string label = std::string(name_of(step.kind)) + " " + std::to_string(step.microbatch);
  if (schedule.num_chunks > 1) label += "." + std::to_string(step.chunk);
  return label;
}

std::vector<TraceTrack> timeline(const Schedule& schedule, const StepTimes& ranks) {
  std::vector<TraceTrack> tracks;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    TraceTrack computing{.process = rank,
                         .process_name = "rank " + std::to_string(r),
                         .thread_name = "computing",
                         .spans = {}};
    std::vector<TraceSpan> messages;
    for (const TimedStep& timed : ranks[r]) {
      TraceSpan span = span_of(schedule, rank, timed);
      if (is_message(timed.step.kind)) {
        messages.push_back(std::move(span));
      } else {
        computing.spans.push_back(std::move(span));
      }
    }
    tracks.push_back(std::move(computing));
    add_to_free_tracks(
        std::move(messages),
        {.process = rank, .thread = 1, .process_name = {}, .thread_name = "messages", .spans = {}},
        tracks);
  }
  return tracks;
}

std::vector<TraceTrack> timeline(const Schedule& schedule,
                                 const std::vector<std::vector<StepSpan>>& spans) {
  MEGATRON_CHECK(spans.size() == schedule.ranks.size(), "times of ", spans.size(),
                 " ranks for a schedule of ", schedule.ranks.size());
  StepTimes ranks;
  for (std::size_t r = 0; r < spans.size(); ++r) {
    const auto& steps = schedule.ranks[r];
    MEGATRON_CHECK(spans[r].size() == steps.size(), "rank ", r, " has times of ", spans[r].size(),
                   " of ", steps.size(), " steps");
    auto& times = ranks.emplace_back();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!is_message(steps[i].kind) ||
          nanoseconds(spans[r][i].end_s) > nanoseconds(spans[r][i].begin_s))
        times.push_back({steps[i], spans[r][i]});
    }
  }
  return timeline(schedule, ranks);
}

}  // namespace megatron
