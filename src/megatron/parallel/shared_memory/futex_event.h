// A word in shared memory that threads and processes sleep on: a futex not private to the process.
// Memory of zeros is a valid futex event.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace megatron {

class FutexEvent {
 public:
  std::uint32_t sequence() const { return sequence_.load(); }
  /// Wakes every sleeper; called after the change that they wait for.
  void notify_all();
  /// Returns after a notify_all() since `seen` was read, when `limit` has passed, or without cause.
  void wait(std::uint32_t seen, std::chrono::milliseconds limit);

 private:
  std::atomic<std::uint32_t> sequence_;
  std::atomic<std::uint32_t> num_waiters_;
};

}  // namespace megatron
