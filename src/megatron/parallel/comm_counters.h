// Communication counters of a rank: calls, bytes and exposed time per axis, operation and name.
// --log-comm and the metrics print them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "megatron/parallel/activity_log.h"

namespace megatron {

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
