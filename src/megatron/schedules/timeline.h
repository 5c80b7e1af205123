// A schedule with the times of its steps, simulated or measured, as tracks of a trace
// (base/trace.h).
#pragma once

#include <string>
#include <vector>

#include "megatron/base/trace.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

/// "F 3", "BW 3.1": kind, microbatch and, where ranks have several, chunk.
std::string label_of(const Schedule& schedule, const ScheduleStep& step);

/// One process per rank: the first track holds what computes, those behind it the messages, as many
/// as overlap.
std::vector<TraceTrack> timeline(const Schedule& schedule, const StepTimes& ranks);
/// The same of every step of every rank, as in Simulation. A message without duration is left out.
std::vector<TraceTrack> timeline(const Schedule& schedule,
                                 const std::vector<std::vector<StepSpan>>& spans);

}  // namespace megatron
