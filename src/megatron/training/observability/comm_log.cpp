#include "megatron/training/observability/comm_log.h"

#include <algorithm>
#include <utility>

namespace megatron {

std::vector<AxisCommStats> CommLog::take_step() {
  ++steps_;
  std::vector<AxisCommStats> axes;
  for (const CommCount& row : counters_.take()) {
    auto axis = std::ranges::find(axes, row.axis, &AxisCommStats::axis);
    if (axis == axes.end()) axis = axes.insert(axes.end(), AxisCommStats{.axis = row.axis});
    axis->calls += row.calls;
    axis->bytes += row.bytes;
    axis->exposed_ms += row.exposed_ms;
    interval_.add(row);
  }
  return axes;
}

std::string CommLog::take_table(std::int64_t rank) {
  const std::string table = format_comm_table(interval_.take(), steps_);
  if (table.empty()) return {};
  return " communication of rank " + std::to_string(rank) + ", means of " +
         std::to_string(std::exchange(steps_, 0)) + " steps\n" + table;
}

}  // namespace megatron
