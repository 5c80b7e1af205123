// Adds sends and receives to the steps of a schedule.
#pragma once

#include "megatron/schedules/schedule.h"

namespace megatron {

/// Puts each send directly after the step whose result it carries, and each receive directly before
/// the step that needs it. With `ahead`, a receive comes one step earlier, so that it overlaps with
/// that step. Between two ranks, in each direction, receives have the order of the sends. Chunks of
/// one rank exchange no messages.
/// With `ahead`, the transport must let sends pass a pending receive (NCCL: one communicator per
/// direction). Without it, the schedules of make_schedule.h complete even if every receive blocks
/// its rank.
Schedule with_messages(const Schedule& schedule, bool ahead = true);

}  // namespace megatron
