// Waiting until the host of the store answers: rank 0 may start later than the others, and its name
// may become known later still.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "megatron/parallel/rendezvous/store_client.h"

namespace megatron {

struct StoreConnectOptions {
  /// For a port to open, and again for one that has opened: it may be silent, or close its
  /// connections, until its store is up.
  std::chrono::milliseconds timeout{600'000};
  std::chrono::milliseconds name_timeout{
      5'000};  ///< for a name that nobody knows, from the first answer of the resolver that says so
  /// Called now and then while waiting: seconds so far, and why there is no connection yet.
  std::function<void(double waited_s, const std::string& reason)> progress = {};
};

/// Returns when a store at the address answers. UserError naming the address when its name stays
/// unknown, when nobody accepts in time, or when what answers is another service.
std::shared_ptr<StoreClient> connect_to_store(const StoreAddress& address,
                                              const StoreConnectOptions& options);

}  // namespace megatron
