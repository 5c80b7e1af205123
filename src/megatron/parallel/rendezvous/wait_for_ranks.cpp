#include "megatron/parallel/rendezvous/wait_for_ranks.h"

#include <algorithm>
#include <thread>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

std::string key_of(const std::string& key, std::int64_t rank) {
  return key + "/" + std::to_string(rank);
}

/// Returns "rank 3 has not arrived after 60 s" for those of the ranks whose keys are not set.
std::string missing_text(RunStore& store, const std::string& key,
                         const std::vector<std::int64_t>& ranks, milliseconds timeout) {
  std::vector<std::int64_t> missing;
  std::ranges::copy_if(ranks, std::back_inserter(missing),
                       [&](std::int64_t rank) { return !store.has_all({key_of(key, rank)}); });
  return name_ranks(missing) + (missing.size() == 1 ? " has" : " have") + " not arrived after " +
         time_text(timeout);
}

}  // namespace

std::vector<std::string> wait_for_ranks(RunStore store, const std::string& key,
                                        const std::vector<std::int64_t>& ranks,
                                        const StoreWait& wait) {
  std::vector<std::string> values;
  const auto begin = std::chrono::steady_clock::now();
  milliseconds pause(1);
  while (values.size() < ranks.size()) {
    if (auto value = store.find(key_of(key, ranks[values.size()]))) {
      values.push_back(std::move(*value));
      continue;
    }
    std::string reason = wait.find_failure ? wait.find_failure() : "";
    if (reason.empty() && std::chrono::steady_clock::now() - begin >= wait.timeout)
      reason = missing_text(
          store, key, {ranks.begin() + static_cast<std::ptrdiff_t>(values.size()), ranks.end()},
          wait.timeout);
    if (!reason.empty()) throw CommError(wait.what + ": " + reason);
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(20));
  }
  return values;
}

}  // namespace megatron
