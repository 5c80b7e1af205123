// The times that ranks took for the parts of a step, without their waits for each other, and the
// ranks that are slower than their peers (--log-straggler).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace megatron {

struct RankTime {
  std::int64_t rank = 0;
  double seconds = 0;
};

/// A part of a step on the fastest and on the slowest ranks: own time per step, ascending.
struct PartTimes {
  std::string part;  ///< "data", "forward", …
  std::vector<RankTime> fastest, slowest;
};

/// A part in which a rank is slower than its peers. Times are medians over the steps.
struct SlowPart {
  std::string part;
  double own_s = 0;    ///< own time per step
  double peers_s = 0;  ///< median over the peers of their own time per step
  double ratio = 1;    ///< median of the ratio of the two in each step
};

/// A rank that is slower than its peers, which are the other ranks of its pipeline stage.
struct Straggler {
  std::int64_t rank = 0;
  std::string host;
  std::vector<SlowPart> parts;  ///< the largest excess first
};

struct StragglerMetrics {
  std::int64_t first_iteration = 0, last_iteration = 0;  ///< of the times in `parts`
  std::vector<PartTimes> parts = {};
  std::vector<Straggler> stragglers = {};  ///< the ranks that are slow now
};

}  // namespace megatron
