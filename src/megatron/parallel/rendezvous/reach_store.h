// Waiting until the host of the store answers: rank 0 may start later than the others, and its name may become known later still.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "megatron/parallel/rendezvous/run_store.h"

namespace megatron {

struct ReachOptions {
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds name_timeout{5'000};  ///< for a name that nobody knows
  /// Called now and then while waiting: seconds so far, and why there is no connection yet.
  std::function<void(double waited_s, const std::string& reason)> progress = {};
};

/// Returns when a connection to the address is accepted. UserError naming the address when its name stays unknown or nobody accepts in time.
void await_store(const StoreAddress& address, const ReachOptions& options);

}  // namespace megatron
