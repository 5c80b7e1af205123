#include "megatron/schedules/validate.h"

#include "megatron/schedules/validate_passes.h"

namespace megatron {
namespace {

std::optional<std::string> validate_shape(const Schedule& schedule) {
  if (schedule.num_ranks < 1 || schedule.num_chunks < 1 || schedule.num_microbatches < 1)
    return "a schedule needs at least one rank, chunk and microbatch";
  if (static_cast<std::int64_t>(schedule.ranks.size()) != schedule.num_ranks) {
    return "the schedule has steps of " + std::to_string(schedule.ranks.size()) +
           " ranks instead of " + std::to_string(schedule.num_ranks);
  }
  if (schedule.order == ChunkOrder::v && schedule.num_chunks != 2) {
    return "V order needs 2 chunks per rank, not " + std::to_string(schedule.num_chunks);
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> validate_schedule(const Schedule& schedule, bool with_backward) {
  if (auto problem = validate_shape(schedule)) return problem;
  for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    if (auto problem = validate_rank_steps(schedule, rank, with_backward)) return problem;
  }
  if (auto problem = validate_message_order(schedule)) return problem;
  return validate_no_deadlock(schedule);
}

std::string at_step(const Schedule& schedule, std::int64_t rank, std::int64_t index) {
  return "rank " + std::to_string(rank) + ", step " + std::to_string(index) + " (" +
         name_of(schedule.ranks[rank][index]) + ")";
}

std::string name_of(const ScheduleStep& step) {
  return std::string(name_of(step.kind)) + " of microbatch " + std::to_string(step.microbatch) +
         ", chunk " + std::to_string(step.chunk);
}

}  // namespace megatron
