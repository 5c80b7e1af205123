#include "megatron/parallel/rendezvous/wait_for_ranks.h"

#include <algorithm>
#include <thread>

#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_list.h"
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
  if (missing.empty()) missing.push_back(ranks.front());  // it has not combined the values
  return ranks_text(missing) + (missing.size() == 1 ? " has" : " have") + " not arrived after " +
         time_text(timeout);
}

/// The limit of a wait, and the pauses between two looks.
class WaitLimit {
 public:
  explicit WaitLimit(const StoreWait& wait) : WaitLimit(wait, wait.longest_pause) {}
  WaitLimit(const StoreWait& wait, milliseconds longest_pause)
      : wait_(wait), longest_pause_(longest_pause) {}

  /// Throws CommError if the run has failed or the time is over; missing() then says who is
  /// missing.
  template <class Missing>
  void check(const Missing& missing) const {
    std::string reason = wait_.find_failure ? wait_.find_failure() : "";
    if (reason.empty() && std::chrono::steady_clock::now() - begin_ >= wait_.timeout)
      reason = missing();
    if (!reason.empty()) throw CommError(wait_.what + ": " + reason);
  }
  void pause() const {
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, longest_pause_);
  }

 private:
  const StoreWait& wait_;
  const milliseconds longest_pause_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  mutable milliseconds pause_{1};
};

}  // namespace

std::vector<std::string> wait_for_ranks(RunStore store, const std::string& key,
                                        const std::vector<std::int64_t>& ranks,
                                        const StoreWait& wait) {
  std::vector<std::string> values;
  const WaitLimit limit(wait);
  while (values.size() < ranks.size()) {
    if (auto value = store.find(key_of(key, ranks[values.size()]))) {
      values.push_back(std::move(*value));
      continue;
    }
    limit.check([&] {
      return missing_text(store, key,
                          {ranks.begin() + static_cast<std::ptrdiff_t>(values.size()), ranks.end()},
                          wait.timeout);
    });
    limit.pause();
  }
  return values;
}

std::string agree_over_store(
    RunStore store, const std::string& key, std::int64_t own_rank, const std::string& value,
    const std::vector<std::int64_t>& ranks,
    const std::function<std::string(const std::vector<std::string>& values)>& combine,
    const StoreWait& wait) {
  const std::string result_key = key + "/result";
  store.set(key_of(key, own_rank), value);
  if (own_rank == ranks.front()) {
    const std::string result = combine(wait_for_ranks(store, key, ranks, wait));
    store.set(result_key, result);
    return result;
  }
  // At most a thousand requests per second reach the store.
  const milliseconds longest_pause = std::max(milliseconds(20), milliseconds(ranks.size()));
  for (const WaitLimit limit(wait, longest_pause);; limit.pause()) {
    if (auto result = store.find(result_key)) return *result;
    limit.check([&] { return missing_text(store, key, ranks, wait.timeout); });
  }
}

}  // namespace megatron
