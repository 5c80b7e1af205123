// A discrete-event simulation of one run on hosts that fail.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "megatron/reliability/failure_mix.h"
#include "megatron/reliability/recovery_policy.h"

namespace megatron {

/// The run and its cluster.
struct ReplayedRun {
  double seconds = 54 * 86400.0;  ///< of the clock, not of training
  std::int64_t hosts = 2048, gpus_per_host = 8;
  std::int64_t hosts_per_replica = 16;  ///< by which an elastic run shrinks and grows
  double step_s = 6;
  double checkpoint_interval_s = 900;  ///< of training between two saves
  double save_s = 5;                   ///< by which a save interrupts training
  double durable_s = 60;               ///< after which a save can be loaded
  double slow_speed = 0.8;             ///< of a run with a slow host
  double failure_rate_scale = 1;
};

/// Why time is not effective. `repeated`: steps whose results were lost; `slower`: fewer replicas
/// than planned, or a slow host.
enum class LostTime : std::uint8_t {
  detection,
  reaction,
  waiting,
  restart,
  repeated,
  saving,
  slower
};
inline constexpr std::size_t kNumLostTimes = 7;
inline constexpr std::array<const char*, kNumLostTimes> kLostTimeNames{
    "detection", "reaction", "waiting", "restart", "repeated", "saving", "slower"};

struct ReplayResult {
  double effective = 0;                         ///< share of the time
  std::array<double, kNumLostTimes> lost = {};  ///< shares; with `effective` they add up to 1
  std::int64_t restarts = 0;
  std::vector<std::int64_t> failures;  ///< of each class of the mix
};

/// Simulates one run. The same seed gives the same failures as long as the same hosts are in use.
ReplayResult replay_run(const ReplayedRun& run, const FailureMix& mix, const RecoveryPolicy& policy,
                        std::uint64_t seed);

}  // namespace megatron
