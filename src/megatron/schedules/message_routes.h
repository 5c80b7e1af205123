// Where the message of a step goes or comes from.
#pragma once

#include <optional>

#include "megatron/schedules/schedule.h"

namespace megatron {

/// The other end of a message: a rank, and the step with which it receives or sends it.
struct MessageEndpoint {
  std::int64_t rank = 0;
  ScheduleStep step;
};

/// The receive that belongs to a send of `rank`, the send that belongs to a receive. None past the
/// ends of the model and between chunks of one rank.
std::optional<MessageEndpoint> matching_end(const Schedule& schedule, std::int64_t rank,
                                            const ScheduleStep& message);

/// The message that carries the result of a computing step, and the one that brings what it needs
/// besides what its rank has.
std::optional<ScheduleStep> send_of(const ScheduleStep& step);
std::optional<ScheduleStep> receive_of(const ScheduleStep& step);

}  // namespace megatron
