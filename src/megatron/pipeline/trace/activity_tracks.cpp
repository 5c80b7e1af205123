// Draws the activities of a rank in the trace of a run.
#include <algorithm>
#include <limits>

#include "megatron/pipeline/trace/context_report.h"
#include "megatron/schedules/timeline.h"

namespace megatron {
namespace {

std::int64_t nanoseconds(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

TraceSpan span_between(std::string name, const char* category, double begin_s, double end_s) {
  const std::int64_t begin_ns = nanoseconds(begin_s);
  return {.name = std::move(name),
          .category = category,
          .begin_ns = begin_ns,
          .duration_ns = nanoseconds(end_s) - begin_ns};
}

TraceSpan span_of(const RingStep& step) {
  TraceSpan span =
      span_between("step " + std::to_string(step.step) + ": keys of " + std::to_string(step.source),
                   "attention", step.begin_s, step.end_s);
  span.args = {{"axis", step.axis}, {"blocks", step.num_blocks}};
  return span;
}

TraceSpan span_of(const CommWait& wait) {
  std::string name = "wait: " + wait.operation + " " + wait.what;
  if (wait.operation == "recv") name += " from " + std::to_string(wait.peer);
  if (wait.operation == "send") name += " to " + std::to_string(wait.peer);
  TraceSpan span = span_between(std::move(name), "wait", wait.begin_s, wait.end_s);
  span.args = {{"axis", wait.axis}};
  return span;
}

/// Returns the passes through rings in one direction. Each lasts until the last wait for a message
/// of the ring before the next one.
std::vector<TraceSpan> spans_of_passes(const Activities& activities, bool is_backward) {
  const std::vector<RingPass> passes = ring_passes(activities.ring_steps, is_backward);
  std::vector<TraceSpan> spans;
  auto wait = activities.waits.begin();
  for (std::size_t i = 0; i < passes.size(); ++i) {
    const RingStep &first = *passes[i].front(), &last = *passes[i].back();
    const double next_s = i + 1 < passes.size() ? passes[i + 1].front()->begin_s
                                                : std::numeric_limits<double>::infinity();
    double end_s = last.end_s;
    for (; wait != activities.waits.end() && wait->begin_s < next_s; ++wait) {
      const bool is_message = wait->operation == "send" || wait->operation == "recv";
      if (is_message && wait->axis == first.axis) end_s = std::max(end_s, wait->end_s);
    }
    spans.push_back(
        span_between(is_backward ? "ring attention, backward" : "ring attention, forward",
                     "attention", first.begin_s, end_s));
  }
  return spans;
}

}  // namespace

std::vector<TraceTrack> activity_tracks(const RankTrace& rank, std::int64_t thread) {
  TraceTrack attention{.process = rank.rank,
                       .thread = thread,
                       .process_name = {},
                       .thread_name = "attention over cp",
                       .spans = {}};
  std::vector<TraceSpan> others;
  for (const TracedIteration& iteration : rank.iterations) {
    const Activities& activities = iteration.activities;
    for (const bool is_backward : {false, true}) {
      for (TraceSpan& pass : spans_of_passes(activities, is_backward))
        attention.spans.push_back(std::move(pass));
    }
    for (const RingStep& step : activities.ring_steps) attention.spans.push_back(span_of(step));
    for (const CommWait& wait : activities.waits) {
      if (wait.axis == "pp") continue;  // the track of messages has these
      (wait.axis.starts_with("cp") ? attention.spans : others).push_back(span_of(wait));
    }
  }
  std::vector<TraceTrack> tracks;
  if (!attention.spans.empty()) tracks.push_back(std::move(attention));
  std::ranges::sort(others, {}, &TraceSpan::begin_ns);
  add_to_free_tracks(std::move(others),
                     {.process = rank.rank,
                      .thread = thread + 1,
                      .process_name = {},
                      .thread_name = "waits for other ranks",
                      .spans = {}},
                     tracks);
  return tracks;
}

}  // namespace megatron
