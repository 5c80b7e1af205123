// Reports this rank's communication costs (--log-comm): per axis in every step's metrics, and per
// call in a table for each log interval.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/parallel/communicators.h"

namespace megatron {

class CommLog {
 public:
  explicit CommLog(CommCounters& counters) : counters_(counters) {}

  /// Returns the counts since the last call, per axis.
  std::vector<AxisCommStats> take_step();
  /// Discards the counts since the last call: they belong to no step.
  void skip() { counters_.take(); }
  /// Returns a table of the calls since the last table, averaged per step; "" when nothing was
  /// counted.
  std::string take_table(std::int64_t rank);

 private:
  CommCounters& counters_;
  CommCounters interval_;
  std::int64_t steps_ = 0;
};

}  // namespace megatron
