// A greedy list scheduler: whenever a rank is free, it takes the step that fits best under the
// measured step times.
#pragma once

#include <optional>
#include <vector>

#include "megatron/schedules/search.h"

namespace megatron {

struct ListScheduleOptions {
  double activation_limit = 0;  ///< Limit of each rank; 0: none.
  double first_depth = 0;       ///< Microbatches that the first rank may keep; 0: no bound.
  double last_depth = 0;  ///< The same for the last rank; ranks between them are interpolated.
  /// Longest wait for a backward before a forward begins, as a fraction of the forward's time.
  double forward_delay = 0;
  /// Longest wait for a forward or backward before a weight gradient begins, as a fraction of its
  /// time.
  double weight_delay = 0;
  /// Least time between microbatches that enter the pipeline, as a fraction of the busiest rank's
  /// time for one microbatch.
  double injection_interval = 0;
  bool is_split = true;       ///< Splits each backward into B and W.
  bool is_deep_first = true;  ///< Prefers the later one of several chunks.
  /// A microbatch enters only when all its chunks fit at once.
  bool reserves_all_chunks = false;
};

/// Returns the schedule, or nothing when the limits lead to a deadlock.
std::optional<Schedule> list_schedule(const SearchRequest& request, const SearchLayout& layout,
                                      const ListScheduleOptions& options);

}  // namespace megatron
