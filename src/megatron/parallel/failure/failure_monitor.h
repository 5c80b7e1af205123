// Propagates failures between hosts. A thread follows the store and this host's status, copies a
// failure from either to the other, cancels the waits of channels, which cannot poll themselves,
// and answers when another host asks which ranks wait for which.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "megatron/control/run_store.h"
#include "megatron/parallel/failure/host_status.h"

namespace megatron {

class FailureMonitor {
 public:
  struct Options {
    std::int64_t rank = 0;  ///< Rank in the world.
    /// For every rank of the world, the first rank of its host group.
    std::vector<std::int64_t> host_leader = {};
    std::chrono::milliseconds timeout{600'000};  ///< Limit of a wait.
  };
  FailureMonitor(RunStore store, std::shared_ptr<HostStatus> host_status, Options options);
  ~FailureMonitor();
  FailureMonitor(const FailureMonitor&) = delete;
  FailureMonitor& operator=(const FailureMonitor&) = delete;

  /// Registers `cancel`, which is called once something has failed. It must hold the object that it
  /// cancels by a weak pointer.
  void add_cancel(std::function<void()> cancel);
  /// Publishes the failure of this host, if there is one, to the other hosts at once.
  void publish_failure();

 private:
  void watch();
  void poll_store();
  /// Records a failure that another host has published.
  void take_failure(const std::string& published);
  bool has_failed();
  void check_timeouts();
  /// What other hosts have written to the store.
  struct Updates {
    std::optional<std::string> failure = {};
    std::int64_t request = 0;  ///< number of the last request for states
  };
  Updates read_updates();
  std::int64_t last_request();
  /// Publishes the states of this host's ranks when another host asks for them and no rank of this
  /// host does.
  void answer_request(std::int64_t request);
  void publish_states(std::int64_t request);
  /// Waits until the first rank that asked comes to its verdict. Returns the number of its request
  /// if the wait continues; nothing after a failure or a timeout.
  std::optional<std::int64_t> await_first_requester();
  void request_states(const std::vector<std::int64_t>& missing, RankStates& states);
  void query_states(const std::vector<std::int64_t>& missing, RankStates& states);
  bool wait_for_states(const std::vector<std::int64_t>& ranks, std::int64_t request,
                       RankStates& states);
  void cancel_all();

  RunStore store_;
  std::shared_ptr<HostStatus> host_status_;
  const Options options_;
  std::chrono::milliseconds limit_;  ///< Of a wait; beyond the timeout while others make progress.
  bool is_watch_tried_ = false;
  std::unique_ptr<StoreWatch> watch_;              ///< Null if the store cannot be watched.
  const std::chrono::milliseconds poll_interval_;  ///< Of the store, without a watch.
  std::chrono::steady_clock::time_point next_poll_{};
  std::mutex request_mutex_;
  // Guarded by request_mutex_.
  std::int64_t seen_request_ = 0;             ///< the last one that this rank has seen
  SuspendAwareTimer request_timer_;           ///< since then
  std::mutex query_mutex_;                    ///< one query at a time changes the store's timeout
  std::atomic<std::int64_t> own_request_{0};  ///< the last one that this rank made
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  bool is_cancelled_ = false;  ///< cancel_all() has taken the functions
  std::vector<std::function<void()>> cancels_;
  std::thread thread_;
};

}  // namespace megatron
