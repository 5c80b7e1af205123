// Waits until the host of the store answers. Rank 0 may start later than the other ranks, and its
// host name may become resolvable even later.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "megatron/control/store_client.h"

namespace megatron {

struct StoreConnectOptions {
  /// Limit for the port to open and, after that, again for the store behind it to answer. An open
  /// port may be silent or close connections until the store is up.
  std::chrono::milliseconds timeout{600'000};
  /// Limit for a host name that cannot be resolved, counted from the first answer that says so.
  std::chrono::milliseconds name_timeout{5'000};
  std::string token = {};  ///< Secret that the store asks for; empty: it must ask for none.
  bool has_tokens = true;  ///< The store is one of this program's, which may ask for a token.
  /// Called at intervals while waiting, with the seconds so far and the reason for the wait.
  std::function<void(double waited_s, const std::string& reason)> progress = {};
  /// Asked at intervals while waiting: true ends the wait with StoreLost. Null: never.
  std::function<bool()> is_cancelled = {};
};

/// Returns once a store at the address answers. Throws UserError with the address when its name
/// cannot be resolved, when nothing accepts in time, when another service answers, or when the
/// store refuses the token.
std::shared_ptr<StoreClient> connect_to_store(const StoreAddress& address,
                                              const StoreConnectOptions& options);

}  // namespace megatron
