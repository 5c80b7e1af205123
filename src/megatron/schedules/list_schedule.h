// A greedy scheduler: whenever a rank is free it takes the step that suits best under the times
// that steps really take.
#pragma once

#include <optional>
#include <vector>

#include "megatron/schedules/search.h"

namespace megatron {

struct ListScheduleOptions {
  double activation_limit = 0;  ///< of each rank; 0: none
  double first_depth = 0;       ///< microbatches that the first rank may keep; 0: no bound
  double last_depth = 0;        ///< and the last; those between them evenly in between
  double forward_delay =
      0;  ///< waits for a backward rather than begin a forward: of the forward's time
  double weight_delay =
      0;  ///< waits for a forward or backward rather than begin a weight gradient: of its time
  double injection_interval = 0;  ///< least time between microbatches that enter the pipeline: of
                                  ///< what the busiest rank does for one
  bool is_split = true;           ///< backwards are B and W; else both in one
  bool is_deep_first = true;      ///< of several chunks the later one goes first
  bool reserves_all_chunks =
      false;  ///< a microbatch enters only when all its chunks fit, as if it kept them at once
};

/// None when the limits leave the ranks stuck.
std::optional<Schedule> list_schedule(const SearchRequest& request, const SearchLayout& layout,
                                      const ListScheduleOptions& options);

}  // namespace megatron
