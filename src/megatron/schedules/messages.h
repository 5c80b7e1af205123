// Adds sends and receives to the steps of a schedule, and finds the other end of each.
#pragma once

#include <optional>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// The other end of a message: a rank, and its step that receives or sends the message.
struct MessageEndpoint {
  std::int64_t rank = 0;
  ScheduleStep step;
};

/// Returns the receive that belongs to a send of `rank`, or the send that belongs to a receive.
/// Returns nothing past the ends of the model and between chunks of one rank.
std::optional<MessageEndpoint> matching_end(const Schedule& schedule, std::int64_t rank,
                                            const ScheduleStep& message);

/// Returns the send that carries the result of a computing step.
std::optional<ScheduleStep> send_of(const ScheduleStep& step);
/// Returns the receive that brings a computing step's input from another rank.
std::optional<ScheduleStep> receive_of(const ScheduleStep& step);

/// Puts each send directly after the step whose result it carries, and each receive directly before
/// the step that needs it. With `ahead`, a receive comes one step earlier, so that it overlaps with
/// that step. Between two ranks, in each direction, receives have the order of the sends. Chunks of
/// one rank exchange no messages.
/// With `ahead`, the transport must let sends pass a pending receive (NCCL: one communicator per
/// direction). Without it, the schedules of make_schedule.h complete even if every receive blocks
/// its rank.
Schedule with_messages(const Schedule& schedule, bool ahead = true);

}  // namespace megatron
