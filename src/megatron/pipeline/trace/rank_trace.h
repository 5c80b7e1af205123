// The trace of one rank over some iterations, and its serialization for rank 0.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/parallel/comm_counters.h"
#include "megatron/parallel/link_speed.h"
#include "megatron/pipeline/trace/clock_offset.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

/// A phase of an iteration outside the schedule's steps, such as "optimizer".
struct TracedPhase {
  std::string name;
  StepSpan span;
};

struct TracedIteration {
  std::int64_t iteration = 0, num_microbatches = 0;
  std::vector<TimedStep> steps;
  std::vector<TracedPhase> phases;
  Activities activities = {};
};

struct RankTrace {
  std::int64_t rank = 0, pp = 0, dp = 0, cp = 0, tp = 0;  ///< World rank and coordinates.
  ClockOffset clock;  ///< Offset that has already been subtracted from the times.
  /// That of a message of keys and values between neighbours in cp, while nothing is computed.
  LinkSpeed cp_link = {};
  std::vector<TracedIteration> iterations;
};

/// Subtracts `clock` from every time.
void align_to_rank_0_clock(RankTrace& trace);

std::string serialize(const RankTrace& trace);
RankTrace parse_rank_trace(const std::string& text);

}  // namespace megatron
