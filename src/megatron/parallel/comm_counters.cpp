#include "megatron/parallel/comm_counters.h"

#include <algorithm>
#include <utility>

#include "megatron/base/format.h"

namespace megatron {
namespace {

std::string table_line(const char* axis, const char* operation, const char* what,
                       const std::string& calls, const std::string& megabytes,
                       const std::string& milliseconds) {
  return format("%-10s %-14s %-28s %10s %12s %12s\n", axis, operation, what, calls.c_str(),
                megabytes.c_str(), milliseconds.c_str());
}

std::string number(double value, int digits) { return format("%.*f", digits, value); }

}  // namespace

void ActivityLog::add(CommWait wait) {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  activities_.waits.push_back(std::move(wait));
}

void ActivityLog::add(RingStep step) {
  if (!is_on_) return;
  const std::lock_guard lock(mutex_);
  activities_.ring_steps.push_back(std::move(step));
}

Activities ActivityLog::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(activities_, {});
}

CommCount& CommCounters::find_or_add(const std::string& axis, const std::string& operation,
                                     const std::string& what) {
  CommCount& count = counts_[Key{axis, operation, what}];
  if (count.operation.empty()) count = {.axis = axis, .operation = operation, .what = what};
  return count;
}

void CommCounters::add_call(const std::string& axis, const char* operation, const char* what,
                            std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  CommCount& count = find_or_add(axis, operation, what);
  ++count.calls;
  count.bytes += bytes;
}

void CommCounters::add_exposed(const std::string& axis, const char* operation, const char* what,
                               double milliseconds) {
  exposed_ns_ += static_cast<std::int64_t>(milliseconds * 1e6);
  const std::lock_guard lock(mutex_);
  find_or_add(axis, operation, what).exposed_ms += milliseconds;
}

void CommCounters::add(const CommCount& row) {
  const std::lock_guard lock(mutex_);
  CommCount& count = find_or_add(row.axis, row.operation, row.what);
  count.calls += row.calls;
  count.bytes += row.bytes;
  count.exposed_ms += row.exposed_ms;
}

std::vector<CommCount> CommCounters::take() {
  std::map<Key, CommCount> counts;
  {
    const std::lock_guard lock(mutex_);
    counts.swap(counts_);
  }
  std::vector<CommCount> rows;
  for (const auto& [key, count] : counts) rows.push_back(count);
  return rows;
}

std::string format_comm_table(const std::vector<CommCount>& rows, std::int64_t steps) {
  if (rows.empty()) return {};
  const double divisor = static_cast<double>(std::max<std::int64_t>(steps, 1));
  std::string table = table_line("axis", "operation", "what", "calls", "MB", "exposed ms");
  CommCount total;
  for (const CommCount& row : rows) {
    total.calls += row.calls;
    total.bytes += row.bytes;
    total.exposed_ms += row.exposed_ms;
    table += table_line(row.axis.c_str(), row.operation.c_str(), row.what.c_str(),
                        number(static_cast<double>(row.calls) / divisor, 1),
                        number(static_cast<double>(row.bytes) / 1e6 / divisor, 3),
                        number(row.exposed_ms / divisor, 2));
  }
  return table + table_line("total", "", "", number(static_cast<double>(total.calls) / divisor, 1),
                            number(static_cast<double>(total.bytes) / 1e6 / divisor, 3),
                            number(total.exposed_ms / divisor, 2));
}

}  // namespace megatron
