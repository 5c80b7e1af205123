// A futex event in shared memory that threads and processes can sleep on. Zero-filled memory is a
// valid object.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace megatron {

class FutexEvent {
 public:
  std::uint32_t sequence() const { return sequence_.load(); }
  /// Wakes every waiter. Call it after the change that they wait for.
  void notify_all();
  /// Returns after a notify_all() since `seen` was read, after `limit`, or spuriously.
  void wait(std::uint32_t seen, std::chrono::milliseconds limit);

 private:
  std::atomic<std::uint32_t> sequence_;
  std::atomic<std::uint32_t> num_waiters_;
};

}  // namespace megatron
