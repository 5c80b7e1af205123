// Carries news between hosts: a thread that looks at the store and at this host's status, tells the
// one what the other knows, ends the waits of channels, which cannot look themselves, and answers
// when another host asks who holds everybody up.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/gloo/bootstrap_store.h"

namespace megatron {

class FailureMonitor {
 public:
  struct Options {
    std::int64_t rank = 0;  ///< of the world
    std::vector<std::int64_t> host_leader =
        {};  ///< per rank of the world, the first rank of its host group
    std::chrono::milliseconds timeout{600'000};  ///< of a wait
  };
  FailureMonitor(BootstrapStore& bootstrap, std::shared_ptr<HostStatus> host_status,
                 Options options);
  ~FailureMonitor();
  FailureMonitor(const FailureMonitor&) = delete;
  FailureMonitor& operator=(const FailureMonitor&) = delete;

  /// Calls `cancel` once something has failed; it holds what it cancels weakly.
  void add_cancel(std::function<void()> cancel);
  /// Tells the other hosts at once what the host status holds.
  void publish_failure();

 private:
  void watch();
  void poll_store();
  void check_timeouts();
  void publish_states();
  void request_states(const std::vector<std::int64_t>& missing, RankStates& states);
  void query_states(const std::vector<std::int64_t>& missing, RankStates& states);
  bool wait_for_states(const std::vector<std::int64_t>& ranks, RankStates& states);
  void cancel_all();

  BootstrapStore& bootstrap_;
  std::shared_ptr<HostStatus> host_status_;
  const Options options_;
  std::atomic<bool> has_published_states_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ending_ = false;
  std::vector<std::function<void()>> cancels_;
  std::thread thread_;
};

}  // namespace megatron
