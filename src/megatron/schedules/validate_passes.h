// The three proofs of validate.h. Each takes for granted what the ones before it proved.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// What one rank does, seen alone: every step once, behind what it needs of the same rank; weight
/// gradients in order; joined pairs.
std::optional<std::string> validate_rank_steps(const Schedule& schedule, std::int64_t rank,
                                               bool with_backward);

/// Between two ranks, in each direction, receives stand in the order of the sends.
std::optional<std::string> validate_message_order(const Schedule& schedule);

/// All ranks come to their end: a computing step waits for what it receives, a joined pair for the
/// inputs of both, sends and receives for nothing.
std::optional<std::string> validate_no_deadlock(const Schedule& schedule);

/// "rank 2, step 14 (F of microbatch 3, chunk 0)".
std::string at_step(const Schedule& schedule, std::int64_t rank, std::int64_t index);
/// "F of microbatch 3, chunk 0".
std::string name_of(const ScheduleStep& step);

}  // namespace megatron
