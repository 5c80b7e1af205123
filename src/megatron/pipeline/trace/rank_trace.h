// What one rank recorded of some iterations, and the text in which it goes to rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/pipeline/trace/clock_offset.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

/// A part of an iteration outside the schedule's steps: "optimizer".
struct TracedPhase {
  std::string name;
  StepSpan span;
};

struct TracedIteration {
  std::int64_t iteration = 0, num_microbatches = 0;
  std::vector<TimedStep> steps;
  std::vector<TracedPhase> phases;
};

struct RankTrace {
  std::int64_t rank = 0, pp = 0, dp = 0, cp = 0, tp = 0;  ///< in the world and on its axes
  ClockOffset clock;                                      ///< already taken off the times
  std::vector<TracedIteration> iterations;
};

/// Takes `clock` off every time.
void align_to_rank_0_clock(RankTrace& trace);

std::string serialize(const RankTrace& trace);
RankTrace parse_rank_trace(const std::string& text);

}  // namespace megatron
