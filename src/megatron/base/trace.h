// Stretches of time as a trace in Chrome's Trace Event format, for ui.perfetto.dev and
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

/// One stretch. Stretches of a track nest or follow each other; they never overlap otherwise.
struct TraceSpan {
  std::string name;
  std::string category;  ///< what the viewer filters by
  std::int64_t begin_ns = 0, duration_ns = 0;
  std::vector<std::pair<std::string, TraceValue>> args = {};  ///< shown when the stretch is clicked
};

/// One line of the trace: a thread of a process.
struct TraceTrack {
  std::int64_t process = 0, thread = 0;
  std::string process_name, thread_name = {};  ///< empty: the viewer shows the number
  std::vector<TraceSpan> spans;
};

/// One complete event ("ph": "X") per stretch, in microseconds from the first.
std::string trace_json(std::span<const TraceTrack> tracks);

}  // namespace megatron
