// Searches the schedule with the smallest makespan under measured stage times
// (--pipeline-schedule auto).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// A way to split the model into stages, with the resulting costs.
struct SearchLayout {
  std::int64_t num_chunks = 1;
  ChunkOrder order = ChunkOrder::loop;
  CostModel costs;
};

struct SearchRequest {
  std::int64_t num_ranks = 1, num_microbatches = 1;
  std::vector<SearchLayout> layouts;  ///< At least one.
  double activation_limit = 0;        ///< Limit of every rank, in the unit of StageCost; 0: none.
  std::int64_t microbatch_group = 0;  ///< For interleaved, as in ScheduleRequest.
  std::int64_t effort = 60'000'000;   ///< Total number of simulated steps, which bounds the time.
};

/// A schedule with its figures under the costs of a layout. `problem` says why there is none.
struct ScheduleCandidate {
  Schedule schedule;
  CostModel costs;
  /// peak_activation is the largest peak of all ranks.
  double makespan_s = 0, total_bubble = 0, peak_activation = 0;
  std::string problem = {};
};

/// Returns every named schedule in every layout that it supports.
std::vector<ScheduleCandidate> fixed_candidates(const SearchRequest& request);

/// Returns the best schedule found, at least as good as every named schedule within the limit. It
/// holds the computing steps without messages; num_chunks and order identify its layout. The result
/// is deterministic. Throws UserError, which names the smallest sufficient limit, when no schedule
/// fits the limit.
ScheduleCandidate search_schedule(const SearchRequest& request);

}  // namespace megatron
