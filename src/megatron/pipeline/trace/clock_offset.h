// How far the clocks of two hosts are apart, so that their ranks' times can lie on one axis.
#pragma once

#include <vector>

#include "megatron/parallel/agreement.h"

namespace megatron {

struct ClockOffset {
  double seconds = 0;   ///< what this rank's monotonic clock shows more than rank 0's
  double accuracy = 0;  ///< ± seconds, proven; 0 on rank 0's host
};

/// One barrier as one rank saw it.
struct BarrierTimes {
  double entered_s = 0, left_s = 0;
};

/// From the same barriers on two ranks: nobody leaves one before all have entered it, so each round
/// bounds the offset from both sides.
ClockOffset offset_between(const std::vector<BarrierTimes>& ours,
                           const std::vector<BarrierTimes>& theirs);

/// This rank's clock beside rank 0's. Ranks of one host share a clock; barriers are held where
/// there are several hosts. Collective over the axis.
ClockOffset clock_offset(const ObjectGroup& group);

}  // namespace megatron
