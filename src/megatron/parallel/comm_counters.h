// Communication counters of a rank: calls, bytes and exposed time per axis, operation and name.
// --log-comm and the metrics print them. A log of single waits and of the steps of a ring, for
// --trace.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
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

/// Records when a rank waits for others and when it computes the steps of a ring, while it is
/// switched on. Every method is thread-safe.
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

struct CommCount {
  std::string axis, operation, what;
  std::int64_t calls = 0;
  /// Bytes of the larger of this rank's two tensors, so that a reduce-scatter and an all-gather
  /// count as much as the all-reduce that they replace.
  std::int64_t bytes = 0;
  double exposed_ms = 0.0;  ///< Time that the caller was blocked, in calls and in Work::wait().
};

/// Counters of one rank's groups. Every method is thread-safe.
class CommCounters {
 public:
  void add_call(const std::string& axis, const char* operation, const char* what,
                std::int64_t bytes);
  void add_exposed(const std::string& axis, const char* operation, const char* what,
                   double milliseconds);
  /// Adds to the row with the same axis, operation and name.
  void add(const CommCount& row);
  /// Returns the rows counted since the last take(), sorted by axis, operation and name.
  std::vector<CommCount> take();
  /// Returns the seconds of exposed time since the counters were made, which take() does not reset.
  double exposed_seconds() const { return static_cast<double>(exposed_ns_.load()) * 1e-9; }
  /// Returns the log of the single waits, which is off at first.
  ActivityLog& activities() { return activities_; }

 private:
  using Key = std::tuple<std::string, std::string, std::string>;
  CommCount& find_or_add(const std::string& axis, const std::string& operation,
                         const std::string& what);
  std::mutex mutex_;
  std::map<Key, CommCount> counts_;
  std::atomic<std::int64_t> exposed_ns_ = 0;
  ActivityLog activities_;
};

/// Formats a table with one line per row and a total, or "" when there are no rows. All figures are
/// divided by `steps`.
std::string format_comm_table(const std::vector<CommCount>& rows, std::int64_t steps = 1);

}  // namespace megatron
