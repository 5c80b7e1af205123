// std::call_once for a function that may throw: an exception through std::call_once passes C frames
// of the C library, which ThreadSanitizer does not survive.
#pragma once

#include <atomic>
#include <mutex>

namespace megatron {

/// Runs one function once for all threads; the others wait for it. After an exception, which the
/// caller gets, the next call runs it again.
class Once {
 public:
  template <class Function>
  void run(const Function& function) {
    if (is_done_.load(std::memory_order_acquire)) return;
    const std::lock_guard lock(mutex_);
    if (is_done_.load(std::memory_order_relaxed)) return;
    function();
    is_done_.store(true, std::memory_order_release);
  }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_done_ = false;
};

}  // namespace megatron
