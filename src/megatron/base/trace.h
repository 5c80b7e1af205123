// Writes time spans as a trace in Chrome's Trace Event format, for ui.perfetto.dev and
// chrome://tracing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace megatron {

using TraceValue = std::variant<std::int64_t, double, std::string>;

/// One time span. Spans of a track may nest or follow each other, but must not overlap otherwise.
struct TraceSpan {
  std::string name;
  std::string category;  ///< the viewer can filter by it
  std::int64_t begin_ns = 0, duration_ns = 0;
  std::vector<std::pair<std::string, TraceValue>> args = {};  ///< shown when the span is selected
};

/// One row of the trace: a thread of a process.
struct TraceTrack {
  std::int64_t process = 0, thread = 0;
  std::string process_name, thread_name = {};  ///< if empty, the viewer shows the number
  std::vector<TraceSpan> spans;
};

/// Returns the trace as JSON with one complete event ("ph": "X") per span. Times are in
/// microseconds since the earliest span.
std::string trace_json(std::span<const TraceTrack> tracks);

}  // namespace megatron
