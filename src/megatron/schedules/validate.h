// Proves a schedule right before anything runs.
#pragma once

#include <optional>
#include <string>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// What is wrong with a schedule (with messages), if anything, with rank and step: every stage runs
/// each microbatch forward and backward once, W behind its B; on each rank the weight gradients of
/// a chunk come in ascending microbatch order; sends and receives match in the order of each
/// directed pair of ranks; no timing leads to a deadlock. `with_backward` is false for evaluation.
std::optional<std::string> validate_schedule(const Schedule& schedule, bool with_backward = true);

}  // namespace megatron
