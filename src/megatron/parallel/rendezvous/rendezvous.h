// Opens a rank's connection to the store of its run, which is hosted by rank 0 or by the agent of a
// launcher, and the rendezvous of all ranks over it: it reports missing ranks, compares settings,
// and finds out which ranks share a host.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "megatron/config/launch_environment.h"
#include "megatron/control/run_status.h"
#include "megatron/control/run_store.h"
#include "megatron/parallel/rendezvous/host_table.h"

namespace megatron {

struct ConnectionOptions {
  std::chrono::milliseconds timeout{600'000};
  std::function<void(const std::string& line)> progress;
};

/// Returns whether this rank's process hosts the store.
bool hosts_store(const LaunchEnvironment& environment);

/// Opens the store with only the keys of this start of the run visible. A UserError names the
/// address or the port.
RunStore open_store(const LaunchEnvironment& environment, const ConnectionOptions& options);

struct RendezvousOptions {
  std::chrono::milliseconds timeout{600'000};  ///< --distributed-timeout-minutes
  /// Time between lines about missing ranks during the first minute.
  std::chrono::milliseconds progress_interval{6'000};
  SettingsText settings;  ///< Must be the same on every rank.
  /// Receives progress lines such as "waiting for ranks 3, 5 of 8 (12 s)". Null: stderr.
  std::function<void(const std::string& line)> progress = {};
  std::string host = {};  ///< Pretends to be another host, in simulations.
};

/// Thrown when another rank has failed. The run status holds its failure.
class PeerFailed : public std::runtime_error {
 public:
  explicit PeerFailed(RankFailure failure)
      : std::runtime_error(failure.text), failure_(std::move(failure)) {}
  const RankFailure& failure() const { return failure_; }

 private:
  RankFailure failure_;
};

/// Collective over the world. Rank 0 throws UserError when ranks are missing or were started with
/// other settings; the others then throw PeerFailed.
RunHosts rendezvous(const LaunchEnvironment& environment, RunStore& store, RunStatus& run_status,
                    const RendezvousOptions& options);

}  // namespace megatron
