// The trace of one rank over some iterations, and its serialization for rank 0. The clocks of hosts
// differ: their offset is measured, so that times of all ranks can share an axis.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/parallel/comm_counters.h"
#include "megatron/parallel/link_speed.h"
#include "megatron/parallel/object_collectives.h"
#include "megatron/schedules/step_times.h"

namespace megatron {

struct ClockOffset {
  double seconds = 0;   ///< This rank's monotonic clock minus rank 0's.
  double accuracy = 0;  ///< Proven bound of the error, in seconds; 0 on rank 0's host.
};

/// The times of one barrier on one rank.
struct BarrierTimes {
  double entered_s = 0, left_s = 0;
};

/// Computes the offset from the same barriers on two ranks. No rank leaves a barrier before all
/// have entered it, so each barrier bounds the offset from both sides.
ClockOffset offset_between(const std::vector<BarrierTimes>& ours,
                           const std::vector<BarrierTimes>& theirs);

/// Returns the offset of this rank's clock from rank 0's. Runs barriers only when there are several
/// hosts, because ranks of one host share a clock. Collective over the axis.
ClockOffset clock_offset(const ObjectGroup& group);

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
