// Adds the sends and receives to a schedule's steps.
#pragma once

#include "megatron/schedules/schedule.h"

namespace megatron {

/// A send stands right behind the step whose result it carries; a receive in front of the step that
/// needs it or, with `ahead`, in front of the step before that, so that it overlaps. Between two
/// ranks, in each direction, receives stand in the order of the sends. Between chunks of one rank
/// nothing travels.
/// With `ahead`, a transport must let sends pass a receive that still waits (NCCL: one communicator
/// for each direction). Without, the schedules of make_schedule.h come to their end even if every
/// receive blocks its rank.
Schedule with_messages(const Schedule& schedule, bool ahead = true);

}  // namespace megatron
