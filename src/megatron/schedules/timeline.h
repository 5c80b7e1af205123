// Converts a schedule with simulated or measured step times to tracks of a trace (base/trace.h).
#pragma once

#include <string>
#include <vector>

#include "megatron/base/trace.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

/// Returns "F 3" or "BW 3.1": kind, microbatch and, where ranks have several chunks, the chunk.
std::string label_of(const Schedule& schedule, const ScheduleStep& step);

/// Returns one trace process per rank. The first track holds the computing steps; the next tracks
/// hold the messages, as many as overlap.
std::vector<TraceTrack> timeline(const Schedule& schedule, const StepTimes& ranks);
/// Returns the tracks for the spans of a Simulation. Messages without duration are left out.
std::vector<TraceTrack> timeline(const Schedule& schedule,
                                 const std::vector<std::vector<StepSpan>>& spans);

/// Appends tracks like `first`, with ascending thread numbers from its own on, that hold the spans,
/// which are sorted by their begin: as many tracks as overlap.
void add_to_free_tracks(std::vector<TraceSpan> spans, const TraceTrack& first,
                        std::vector<TraceTrack>& tracks);

}  // namespace megatron
