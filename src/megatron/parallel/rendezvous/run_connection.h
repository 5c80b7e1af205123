// Opens a rank's connection to the store of its run, which is hosted by rank 0 or by the agent of a
// launcher.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "megatron/config/launch_environment.h"
#include "megatron/control/run_status.h"
#include "megatron/control/run_store.h"

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

}  // namespace megatron
