// --pipeline-schedule auto: looks for the schedule with the smallest makespan under the times that
// stages really take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "megatron/schedules/simulate.h"

namespace megatron {

/// A way in which the model may be cut into stages, and what they cost then.
struct SearchLayout {
  std::int64_t num_chunks = 1;
  ChunkOrder order = ChunkOrder::loop;
  CostModel costs;
};

struct SearchRequest {
  std::int64_t num_ranks = 1, num_microbatches = 1;
  std::vector<SearchLayout> layouts;  ///< at least one
  double activation_limit = 0;        ///< of every rank, in the unit of StageCost; 0: none
  std::int64_t microbatch_group = 0;  ///< of interleaved, as in ScheduleRequest
  std::int64_t effort =
      60'000'000;  ///< steps that are simulated in all: the bound of the time it takes
};

/// A fixed schedule under the costs of a layout; `problem` says why there is none.
struct ScheduleCandidate {
  Schedule schedule;
  CostModel costs;
  double makespan_s = 0, total_bubble = 0, peak_activation = 0;  ///< the largest peak of all ranks
  std::string problem = {};
};

/// Every known schedule in every layout that suits it.
std::vector<ScheduleCandidate> fixed_candidates(const SearchRequest& request);

/// The best schedule found, at least as good as every fixed one within the limit: the steps that
/// compute, without messages; num_chunks and order say in which layout. The same request gives the
/// same schedule. UserError when none fits the limit, naming the smallest that would do.
ScheduleCandidate search_schedule(const SearchRequest& request);

}  // namespace megatron
