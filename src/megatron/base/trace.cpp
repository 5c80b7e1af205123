#include "megatron/base/trace.h"

#include <algorithm>
#include <limits>

#include "megatron/base/json_text.h"

namespace megatron {
namespace {

JsonText name_event(const char* kind, const TraceTrack& track, const std::string& name) {
  return {{"ph", "M"},
          {"name", kind},
          {"pid", track.process},
          {"tid", track.thread},
          {"args", {{"name", name}}}};
}

JsonText span_event(const TraceTrack& track, const TraceSpan& span, std::int64_t origin_ns) {
  JsonText event{{"ph", "X"},
                 {"name", span.name},
                 {"cat", span.category},
                 {"pid", track.process},
                 {"tid", track.thread},
                 {"ts", static_cast<double>(span.begin_ns - origin_ns) / 1e3},
                 {"dur", static_cast<double>(span.duration_ns) / 1e3},
                 {"args", JsonText::object()}};
  for (const auto& [key, value] : span.args)
    std::visit([&](const auto& plain) { event["args"][key] = plain; }, value);
  return event;
}

std::int64_t origin_of(std::span<const TraceTrack> tracks) {
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();
  for (const TraceTrack& track : tracks) {
    for (const TraceSpan& span : track.spans) origin = std::min(origin, span.begin_ns);
  }
  return origin;
}

}  // namespace

std::string trace_json(std::span<const TraceTrack> tracks) {
  const std::int64_t origin_ns = origin_of(tracks);
  JsonText events = JsonText::array();
  for (const TraceTrack& track : tracks) {
    if (!track.process_name.empty())
      events.push_back(name_event("process_name", track, track.process_name));
    if (!track.thread_name.empty())
      events.push_back(name_event("thread_name", track, track.thread_name));
    for (const TraceSpan& span : track.spans) events.push_back(span_event(track, span, origin_ns));
  }
  const JsonText trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return trace.dump();
}

}  // namespace megatron
