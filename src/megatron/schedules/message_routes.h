// Finds the source or destination of a step's message.
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

}  // namespace megatron
