// Adds the sends and receives to a schedule's steps.
#pragma once

#include "megatron/schedules/schedule.h"

namespace megatron {

/// A send stands right behind the step whose result it carries; a receive in front of the step that needs it or, with `ahead`, in front of the step
/// before that, so that it overlaps. Between two ranks, in each direction, receives stand in the order of the sends. Between chunks of one rank
/// nothing travels.
Schedule with_messages(const Schedule& schedule, bool ahead = true);

}  // namespace megatron
