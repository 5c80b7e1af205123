#include "megatron/reliability/compare_policies.h"

#include <algorithm>
#include <cmath>

#include "megatron/base/philox.h"

namespace megatron {
namespace {

/// Returns the value below which the share of the sorted values lies (nearest rank).
double quantile(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(
      std::lround(share * static_cast<double>(sorted.size() - 1)))];
}

PolicyResult replay_policy(const ReplayedRun& run, const FailureMix& mix,
                           const RecoveryPolicy& policy, std::int64_t num_replays,
                           std::uint64_t seed) {
  PolicyResult result{.policy = policy};
  std::vector<double> effective;
  const auto count = static_cast<double>(num_replays);
  for (std::int64_t i = 0; i < num_replays; ++i) {
    const std::uint64_t key = philox_key(seed, "replay " + std::to_string(i));
    const ReplayResult replay = replay_run(run, mix, policy, key);
    effective.push_back(replay.effective);
    for (std::size_t cause = 0; cause < kNumLostTimes; ++cause)
      result.lost[cause] += replay.lost[cause] / count;
    result.restarts += static_cast<double>(replay.restarts) / count;
  }
  std::ranges::sort(effective);
  result.median = quantile(effective, 0.5);
  result.low = quantile(effective, 0.05);
  result.high = quantile(effective, 0.95);
  result.of_all_hosts = result.median * static_cast<double>(run.hosts) /
                        static_cast<double>(run.hosts + policy.spare_hosts);
  return result;
}

}  // namespace

std::vector<PolicyResult> compare_policies(const ReplayedRun& run, const FailureMix& mix,
                                           const std::vector<RecoveryPolicy>& policies,
                                           std::int64_t num_replays, std::uint64_t seed) {
  std::vector<PolicyResult> results;
  for (const RecoveryPolicy& policy : policies)
    results.push_back(replay_policy(run, mix, policy, num_replays, seed));
  return results;
}

}  // namespace megatron
