// What communication cost a rank: per axis, operation and name, how often, how many bytes, how long
// the caller waited (--log-comm, metrics).
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace megatron {

struct CommCount {
  std::string axis, operation, what;
  std::int64_t calls = 0;
  std::int64_t bytes = 0;   ///< of the larger of this rank's two tensors: a reduce-scatter and an
                            ///< all-gather count as much as the all-reduce they replace
  double exposed_ms = 0.0;  ///< the caller stood still: in blocking calls and in Work::wait
};

/// Belongs to a rank's Communicators; every method may be called from any thread.
class CommCounters {
 public:
  void add_call(const std::string& axis, const char* operation, const char* what,
                std::int64_t bytes);
  void add_exposed(const std::string& axis, const char* operation, const char* what,
                   double milliseconds);
  /// Adds to the row of the same axis, operation and name.
  void add(const CommCount& row);
  /// In the order of axis, operation, name.
  std::vector<CommCount> rows() const;
  /// The rows since the last take().
  std::vector<CommCount> take();

 private:
  using Key = std::tuple<std::string, std::string, std::string>;
  CommCount& find_or_add(const std::string& axis, const std::string& operation,
                         const std::string& what);
  mutable std::mutex mutex_;
  std::map<Key, CommCount> counts_;
};

/// A table for people, one line per row and a total; empty without rows. Figures are divided by
/// `steps`.
std::string format_comm_table(const std::vector<CommCount>& rows, std::int64_t steps = 1);

}  // namespace megatron
