#include "megatron/training/comm_log.h"

#include <algorithm>
#include <utility>

namespace megatron {
namespace {

bool is_same(const CommCount& a, const CommCount& b) { return a.axis == b.axis && a.operation == b.operation && a.what == b.what; }

template <class Count>
void add(Count& to, const CommCount& from) {
  to.calls += from.calls;
  to.bytes += from.bytes;
  to.exposed_ms += from.exposed_ms;
}

}  // namespace

std::vector<AxisTraffic> CommLog::take_step() {
  if (counters_ == nullptr) return {};
  ++steps_;
  std::vector<AxisTraffic> axes;
  for (const CommCount& row : counters_->take()) {
    auto axis = std::ranges::find(axes, row.axis, &AxisTraffic::axis);
    if (axis == axes.end()) axis = axes.insert(axes.end(), AxisTraffic{.axis = row.axis});
    add(*axis, row);
    const auto known = std::ranges::find_if(interval_, [&](const CommCount& one) { return is_same(one, row); });
    known == interval_.end() ? interval_.push_back(row) : add(*known, row);
  }
  return axes;
}

std::string CommLog::take_table(std::int64_t rank) {
  if (interval_.empty()) return {};
  const std::string table = format_comm_table(std::exchange(interval_, {}), steps_);
  return " communication of rank " + std::to_string(rank) + ", means of " + std::to_string(std::exchange(steps_, 0)) + " steps\n" + table;
}

}  // namespace megatron
