// The rendezvous of all ranks over the store: who is missing, who was started otherwise, who shares
// a host with whom.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/base/cpu_affinity.h"
#include "megatron/config/launch_environment.h"
#include "megatron/parallel/failure/run_status.h"
#include "megatron/parallel/rendezvous/rank_record.h"
#include "megatron/parallel/rendezvous/run_store.h"

namespace megatron {

struct RendezvousOptions {
  std::chrono::milliseconds timeout{600'000};  ///< --distributed-timeout-minutes
  std::chrono::milliseconds progress_interval{
      6'000};             ///< between lines about missing ranks, in the first minute
  SettingsText settings;  ///< must be the same on every rank
  /// Takes a line for people, such as "waiting for ranks 3, 5 of 8 (12 s)". Null: stderr.
  std::function<void(const std::string& line)> progress = {};
};

/// Which ranks run on which host.
struct RunHosts {
  std::vector<std::string> names;          ///< in the order of their first ranks
  std::vector<std::int64_t> host_of_rank;  ///< index into names
  std::string own_identity;                ///< equal for ranks that share memory and network
  std::string own_address = "127.0.0.1";   ///< of this host as the others reach it, in digits
  CpuPartition cpus =
      {};  ///< this rank among those that may run on the same processors of this host, by rank
};

/// Another rank has failed: its failure stands in the run status.
class PeerFailed : public std::runtime_error {
 public:
  explicit PeerFailed(RankFailure failure)
      : std::runtime_error(failure.text), failure_(std::move(failure)) {}
  const RankFailure& failure() const { return failure_; }

 private:
  RankFailure failure_;
};

/// Collective over the world. On rank 0, UserErrors when ranks are missing or were started with
/// other settings; on the others PeerFailed.
RunHosts rendezvous(const LaunchEnvironment& environment, RunStore& store, RunStatus& run_status,
                    const RendezvousOptions& options);

}  // namespace megatron
