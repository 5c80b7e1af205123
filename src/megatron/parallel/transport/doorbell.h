// A word in shared memory that threads and processes sleep on: a futex not private to the process. Memory of zeros is a valid doorbell.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace megatron {

class Doorbell {
 public:
  std::uint32_t ticks() const { return ticks_.load(); }
  /// Wakes every sleeper; called after the change that they wait for.
  void ring();
  /// Returns when the bell has rung since `seen` was read, when `limit` has passed, or without cause.
  void sleep(std::uint32_t seen, std::chrono::milliseconds limit);

 private:
  std::atomic<std::uint32_t> ticks_;
  std::atomic<std::uint32_t> sleepers_;
};

}  // namespace megatron
