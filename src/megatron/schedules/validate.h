// Checks that a schedule is valid before anything runs.
#pragma once

#include <optional>
#include <string>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Returns the first error of a schedule with messages, with its rank and step, or nothing. Every
/// stage must run each microbatch forward and backward once, with W after its B. On each rank, the
/// weight gradients of a chunk must come in ascending microbatch order. Sends and receives must
/// match in order for each directed pair of ranks. No timing may lead to a deadlock.
/// `with_backward` is false for evaluation.
std::optional<std::string> validate_schedule(const Schedule& schedule, bool with_backward = true);

}  // namespace megatron
