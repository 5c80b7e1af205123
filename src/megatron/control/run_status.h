// The first failure of a run, written to the store where every rank finds it. One rank prints it,
// and all ranks end.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "megatron/control/run_store.h"

namespace megatron {

struct RankFailure {
  std::int64_t rank = 0;
  std::string host;
  int code = 1;  ///< Exit code of every rank.
  std::string text;
  bool is_of_others = false;  ///< The text names the rank that it is about, which is not this one.
};

/// The status of one start of a run. A failure is stored under the key `failure`, and ends the
/// waits for the other keys.
class RunStatus {
 public:
  /// Keys that the rendezvous and the end of the run wait for. post() sets them too.
  static constexpr const char* kFailureKey = "failure";
  static constexpr const char* kAllArrivedKey = "all-here";
  static constexpr const char* kHostsKey = "go";
  static constexpr const char* kFinishedKey = "over";
  static constexpr const char* kStoppedValue = "stop";  ///< Value of these keys after a failure.

  RunStatus(RunStore store, std::int64_t world_size)
      : store_(std::move(store)), world_size_(world_size) {}

  /// Returns the keys that post() sets, and their values, for who has no RunStore. The first must
  /// be set only if there is none.
  static std::vector<std::pair<std::string, std::string>> failure_entries(
      const RankFailure& failure);

  /// Records the failure unless there is one already, and wakes all waiting ranks. Returns the
  /// first failure.
  RankFailure post(const RankFailure& failure);
  std::optional<RankFailure> first();
  /// Returns whether first() may have changed, or with `of_lost_ranks` also lost_ranks(), without
  /// asking the store if it can be watched. Waits for a change, at most `limit` or until the
  /// descriptor `wake` can be read. Only one thread may call it, always with the same
  /// `of_lost_ranks`. Throws StoreLost.
  bool wait_for_change(bool of_lost_ranks, std::chrono::milliseconds limit, int wake = -1);
  /// Like first(), but without a request if the watch has the failure already. For the thread that
  /// calls wait_for_change().
  std::optional<RankFailure> watched_first();
  /// Returns whether wait_for_change() costs the store nothing. Known after its first call.
  bool is_watched() const { return watch_ != nullptr; }
  /// Makes the store add this rank to lost_ranks() when its connection is lost, until leave().
  void report_disconnect_of(std::int64_t rank);
  /// Returns the ranks whose connection was lost, ascending.
  std::vector<std::int64_t> lost_ranks();
  /// Returns the failure, or nothing when none occurs within `timeout`.
  std::optional<RankFailure> wait_for_failure(std::chrono::milliseconds timeout);

  void set_printed();
  /// Returns whether this rank is the one that prints the failure: the first that asks.
  bool claim_printing(std::int64_t rank);
  bool wait_until_printed(std::chrono::milliseconds timeout);

  /// Records that this rank no longer needs the store. The last rank to leave wakes the host of the
  /// store. Further calls do nothing.
  void leave(std::int64_t rank);
  /// Returns whether all ranks have left or one has failed within `timeout`.
  bool wait_until_finished(std::chrono::milliseconds timeout);
  /// Returns those of the ranks that have not left yet. Asks the store for each.
  std::vector<std::int64_t> remaining_of(std::vector<std::int64_t> ranks);
  /// Returns the ranks that have not left yet. Asks the store for every rank of the run.
  std::vector<std::int64_t> remaining_ranks();
  /// Returns whether all ranks have left within `timeout`, whether or not one has failed.
  bool wait_until_all_left(std::chrono::milliseconds timeout);

 private:
  RunStore store_;
  std::int64_t world_size_;
  std::unique_ptr<StoreWatch> watch_;  ///< null at first, and for a store that cannot be watched
  bool is_watch_tried_ = false;
  std::atomic<bool> has_left_ = false;
  std::chrono::steady_clock::time_point last_asked_{};
};

}  // namespace megatron
