// Measures time for timeouts. Time in which this process itself did not run (a suspended job, a
// stopped process) does not count.
#pragma once

#include <algorithm>
#include <chrono>

namespace megatron {

class SuspendAwareTimer {
 public:
  /// The time since construction. A gap of more than a second between two calls counts as one
  /// second, so call it several times a second.
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
