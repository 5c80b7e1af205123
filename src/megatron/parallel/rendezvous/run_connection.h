// A rank's connections to the store of its run: hosted by rank 0, by a launcher's agent, or found
// at the master's address.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "megatron/config/launch_environment.h"
#include "megatron/parallel/failure/run_status.h"
#include "megatron/parallel/rendezvous/run_store.h"

namespace megatron {

struct ConnectionOptions {
  std::chrono::milliseconds timeout{600'000};
  std::function<void(const std::string& line)> progress;
};

/// Whether this rank's process hosts the store.
bool hosts_store(const LaunchEnvironment& environment);

/// The store, with only the keys of this start of the run visible. UserErrors name the address or
/// the port. Where the launcher of another host has started its ranks again, InternalError on the
/// ranks that lag behind: their launcher starts them again too.
RunStore open_store(const LaunchEnvironment& environment, const ConnectionOptions& options);

}  // namespace megatron
