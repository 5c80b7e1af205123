// Local search that swaps steps on the critical path of a schedule while that shortens it.
#pragma once

#include "megatron/schedules/simulate.h"

namespace megatron {

/// Returns a lower bound on the makespan of any schedule with the ranks, chunks and microbatches of
/// `shape`. Every rank waits for the first microbatch and does its own work, and after its last
/// input gradient the stages before it compute theirs. Joined steps are not considered.
double makespan_lower_bound(const Schedule& shape, const CostModel& costs);

/// Returns a schedule at least as good as `schedule` and within `activation_limit` (0: none), after
/// at most `max_evaluations` simulations. Steps of one kind and chunk keep their order, and joined
/// pairs stay joined. The result is deterministic.
Schedule improve_schedule(const Schedule& schedule, const CostModel& costs, double activation_limit,
                          std::int64_t max_evaluations);

/// Fuses consecutive B and W steps into one backward, rank by rank, where that costs no time. It
/// saves a pass over the deferred gradients.
Schedule fuse_backwards(const Schedule& schedule, const CostModel& costs);

}  // namespace megatron
