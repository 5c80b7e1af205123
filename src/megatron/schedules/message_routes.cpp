#include "megatron/schedules/message_routes.h"

namespace megatron {
namespace {

bool is_send(StepKind kind) {
  return kind == StepKind::send_forward || kind == StepKind::send_backward;
}
bool is_forward_message(StepKind kind) {
  return kind == StepKind::send_forward || kind == StepKind::recv_forward;
}

StepKind opposite(StepKind kind) {
  if (is_forward_message(kind))
    return is_send(kind) ? StepKind::recv_forward : StepKind::send_forward;
  return is_send(kind) ? StepKind::recv_backward : StepKind::send_backward;
}

}  // namespace

std::optional<MessageEndpoint> matching_end(const Schedule& schedule, std::int64_t rank,
                                            const ScheduleStep& message) {
  const bool towards_last = is_send(message.kind) == is_forward_message(message.kind);
  const std::int64_t stage = schedule.stage_of(rank, message.chunk) + (towards_last ? 1 : -1);
  if (stage < 0 || stage >= schedule.num_stages()) return std::nullopt;
  const std::int64_t other = schedule.rank_of(stage);
  if (other == rank) return std::nullopt;
  return MessageEndpoint{other,
                         {opposite(message.kind), message.microbatch,
                          static_cast<std::int32_t>(schedule.chunk_of(stage))}};
}

std::optional<ScheduleStep> send_of(const ScheduleStep& step) {
  switch (step.kind) {
    case StepKind::forward:
      return ScheduleStep{StepKind::send_forward, step.microbatch, step.chunk};
    case StepKind::backward:
    case StepKind::backward_input:
      return ScheduleStep{StepKind::send_backward, step.microbatch, step.chunk};
    default:
      return std::nullopt;
  }
}

std::optional<ScheduleStep> receive_of(const ScheduleStep& step) {
  switch (step.kind) {
    case StepKind::forward:
      return ScheduleStep{StepKind::recv_forward, step.microbatch, step.chunk};
    case StepKind::backward:
    case StepKind::backward_input:
      return ScheduleStep{StepKind::recv_backward, step.microbatch, step.chunk};
    default:
      return std::nullopt;
  }
}

}  // namespace megatron
