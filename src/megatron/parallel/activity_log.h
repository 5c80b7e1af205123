// Records when a rank waits for others and when it computes the steps of a ring, while the log is
// switched on. --trace reads it.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace megatron {

/// A time in which a call, or Work::wait(), blocked its caller. Times are seconds of the monotonic
/// clock (base/monotonic_clock.h).
struct CommWait {
  std::string axis, operation, what;
  std::int64_t peer = 0;  ///< of a message: the partner's rank in the axis
  double begin_s = 0, end_s = 0;
};

/// The attention of one step of a ring.
struct RingStep {
  std::string axis;
  bool is_backward = false;
  std::int64_t step = 0;
  std::int64_t source = 0;      ///< rank of the axis whose keys the queries see
  std::int64_t num_blocks = 0;  ///< pairs of runs that were computed, not skipped
  double begin_s = 0, end_s = 0;
};

struct Activities {
  std::vector<CommWait> waits;
  std::vector<RingStep> ring_steps;
};

/// Every method is thread-safe.
class ActivityLog {
 public:
  void switch_on(bool on) { is_on_ = on; }
  bool is_on() const { return is_on_; }
  /// The log ignores what is added while it is off.
  void add(CommWait wait);
  void add(RingStep step);
  /// Returns what was added since the last call, in the order in which it ended.
  Activities take();

 private:
  std::atomic<bool> is_on_ = false;
  std::mutex mutex_;
  Activities activities_;
};

}  // namespace megatron
