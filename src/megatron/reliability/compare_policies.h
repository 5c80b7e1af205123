// Many replays of each policy, and what they have in common.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatron/reliability/replay.h"

namespace megatron {

struct PolicyResult {
  RecoveryPolicy policy;
  double median = 0, low = 0, high = 0;  ///< effective share; 5 and 95 of 100 replays are below
  std::array<double, kNumLostTimes> lost = {};  ///< means
  double restarts = 0;                          ///< mean
  double of_all_hosts = 0;  ///< median times the share of hosts that are not spare
};

/// Replays the run `num_replays` times under each policy.
std::vector<PolicyResult> compare_policies(const ReplayedRun& run, const FailureMix& mix,
                                           const std::vector<RecoveryPolicy>& policies,
                                           std::int64_t num_replays, std::uint64_t seed);

}  // namespace megatron
