// Local search: exchanges steps on the critical path of a schedule as long as that pays.
#pragma once

#include "megatron/schedules/simulate.h"

namespace megatron {

/// No schedule of the shape of `shape` takes less, whatever its ranks do: every rank waits for the
/// first microbatch, then has its own work, and behind its last input gradient those of the stages
/// before it. Joined steps are not thought of.
double makespan_lower_bound(const Schedule& shape, const CostModel& costs);

/// A schedule at least as good as `schedule`, within `activation_limit` (0: none), after at most
/// `max_evaluations` simulations. Steps of one kind and chunk keep their order; a joined pair stays
/// as it is. The same arguments give the same schedule.
Schedule improve_schedule(const Schedule& schedule, const CostModel& costs, double activation_limit,
                          std::int64_t max_evaluations);

/// B and W that follow each other made one backward, rank by rank, where that costs no time: it
/// saves a pass over what was put off.
Schedule fuse_backwards(const Schedule& schedule, const CostModel& costs);

}  // namespace megatron
