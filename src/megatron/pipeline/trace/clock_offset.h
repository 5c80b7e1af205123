// Measures the offset between the clocks of two hosts, so that times of all ranks can share an
// axis.
#pragma once

#include <vector>

#include "megatron/parallel/object_collectives.h"

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

}  // namespace megatron
