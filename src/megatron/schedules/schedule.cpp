#include "megatron/schedules/schedule.h"

#include <algorithm>

namespace megatron {

const char* name_of(StepKind kind) {
  switch (kind) {
    case StepKind::forward:
      return "F";
    case StepKind::backward:
      return "BW";
    case StepKind::backward_input:
      return "B";
    case StepKind::backward_weight:
      return "W";
    case StepKind::send_forward:
      return "send F";
    case StepKind::recv_forward:
      return "recv F";
    case StepKind::send_backward:
      return "send B";
    case StepKind::recv_backward:
      return "recv B";
  }
  return "?";
}

const char* description_of(StepKind kind) {
  switch (kind) {
    case StepKind::forward:
      return "forward";
    case StepKind::backward:
      return "backward";
    case StepKind::backward_input:
      return "input gradients";
    case StepKind::backward_weight:
      return "weight gradients";
    default:
      return "message";
  }
}

std::int64_t stage_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t rank,
                      std::int64_t chunk) {
  const bool goes_up = order == ChunkOrder::v && chunk % 2 == 1;
  return chunk * num_ranks + (goes_up ? num_ranks - 1 - rank : rank);
}

std::int64_t chunk_of(ChunkOrder /*order*/, std::int64_t num_ranks, std::int64_t stage) {
  return stage / num_ranks;
}

std::int64_t rank_of(ChunkOrder order, std::int64_t num_ranks, std::int64_t stage) {
  const std::int64_t place = stage % num_ranks;
  return order == ChunkOrder::v && chunk_of(order, num_ranks, stage) % 2 == 1
             ? num_ranks - 1 - place
             : place;
}

std::int64_t Schedule::stage_of(std::int64_t rank, std::int64_t chunk) const {
  return megatron::stage_of(order, num_ranks, rank, chunk);
}
std::int64_t Schedule::rank_of(std::int64_t stage) const {
  return megatron::rank_of(order, num_ranks, stage);
}
std::int64_t Schedule::chunk_of(std::int64_t stage) const {
  return megatron::chunk_of(order, num_ranks, stage);
}

std::int64_t max_pending_losses(const Schedule& schedule) {
  const std::int64_t last = schedule.num_stages() - 1;
  std::int64_t pending = 0, most = 0;
  for (const ScheduleStep& step :
       schedule.ranks[static_cast<std::size_t>(schedule.rank_of(last))]) {
    if (step.chunk != schedule.chunk_of(last)) continue;
    if (step.kind == StepKind::forward) most = std::max(most, ++pending);
    if (step.kind == StepKind::backward || step.kind == StepKind::backward_input) --pending;
  }
  return most;
}

}  // namespace megatron
