// The three passes of validate.h. Each relies on what the passes before it have checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Checks the steps of one rank: each occurs once, after the steps of the same rank that it needs;
/// weight gradients are in order; joined pairs are adjacent.
std::optional<std::string> validate_rank_steps(const Schedule& schedule, std::int64_t rank,
                                               bool with_backward);

/// Checks that between two ranks, in each direction, receives have the order of the sends.
std::optional<std::string> validate_message_order(const Schedule& schedule);

/// Checks that all ranks complete. A computing step waits for what it receives, and a joined pair
/// for the inputs of both steps. Sends and receives do not wait.
std::optional<std::string> validate_no_deadlock(const Schedule& schedule);

/// Returns a position such as "rank 2, step 14 (F of microbatch 3, chunk 0)".
std::string at_step(const Schedule& schedule, std::int64_t rank, std::int64_t index);
/// Returns a step such as "F of microbatch 3, chunk 0".
std::string name_of(const ScheduleStep& step);

}  // namespace megatron
