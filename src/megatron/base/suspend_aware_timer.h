// A timer for timeouts. It does not count time in which this process was suspended or stopped.
#pragma once

#include <algorithm>
#include <chrono>

namespace megatron {

/// Measures the time since its construction without the time in which the process was suspended.
class SuspendAwareTimer {
 public:
  /// Returns the time since construction. A gap of more than a second between two calls counts as
  /// one second, so call it several times per second.
  std::chrono::milliseconds elapsed() {
    const Clock::time_point now = Clock::now();
    elapsed_ += std::min<Clock::duration>(now - last_, std::chrono::seconds(1));
    last_ = now;
    return std::chrono::duration_cast<std::chrono::milliseconds>(elapsed_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_ = Clock::now();
  Clock::duration elapsed_{0};
};

}  // namespace megatron
