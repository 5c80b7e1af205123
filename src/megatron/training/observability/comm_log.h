// What communication cost this rank (--log-comm): per axis for every step's metrics, per call for
// the table of an interval.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/metrics/step_metrics.h"
#include "megatron/parallel/communicators.h"

namespace megatron {

class CommLog {
 public:
  /// `communicators` may be null: a rank alone has nothing to tell.
  CommLog(Communicators* communicators, bool is_wanted)
      : counters_(is_wanted && communicators != nullptr ? &communicators->counters() : nullptr) {}

  /// What was counted since the last call, per axis.
  std::vector<AxisCommStats> take_step();
  /// The calls of the steps since the last table, per step; "" when nothing was counted.
  std::string take_table(std::int64_t rank);

 private:
  CommCounters* counters_;
  CommCounters interval_;
  std::int64_t steps_ = 0;
};

}  // namespace megatron
