// A step of hybrid context parallelism in a few numbers, for logs.
#pragma once

#include <cstdint>

namespace megatron {

/// By the cost model of the schedule (hybrid_context_schedule.h).
struct HybridContextSummary {
  std::int64_t num_sequences = 0, num_microbatches = 1;
  double imbalance = 0;  ///< how much longer the step takes than a rank works on average
  double padding = 0;    ///< fraction of all rows
};

}  // namespace megatron
