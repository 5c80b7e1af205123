// Waits until ranks have written a value to the run's store.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatron/control/run_store.h"

namespace megatron {

struct StoreWait {
  std::string what;  ///< What the wait is for, for messages.
  std::chrono::milliseconds timeout{600'000};
  /// Called while waiting. A text that it returns ends the wait. Null: nothing but the timeout
  /// does.
  std::function<std::string()> find_failure = {};
  std::chrono::milliseconds longest_pause{20};  ///< between two requests
};

/// Returns the values under `key`/<rank> for each of the ranks. Throws CommError, which names
/// `what` and the missing ranks, after the timeout or once find_failure() returns a text.
std::vector<std::string> wait_for_ranks(RunStore store, const std::string& key,
                                        const std::vector<std::int64_t>& ranks,
                                        const StoreWait& wait);

/// Every rank of `ranks` passes a value; the first of them combines all values, in the order of
/// `ranks`, and every rank returns the result. It takes a few requests per rank, however many ranks
/// there are. Collective over `ranks`. Throws CommError like wait_for_ranks().
std::string agree_over_store(
    RunStore store, const std::string& key, std::int64_t own_rank, const std::string& value,
    const std::vector<std::int64_t>& ranks,
    const std::function<std::string(const std::vector<std::string>& values)>& combine,
    const StoreWait& wait);

}  // namespace megatron
