#include "megatron/schedules/validate.h"

#include <algorithm>
#include <vector>

#include "megatron/schedules/messages.h"
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

struct Posted {
  std::int64_t index;  ///< Index of the step on the rank that posts it.
  ScheduleStep other;  ///< Matching step that the other rank must post.
};

/// The messages of one kind (sends or receives) of one rank, by peer.
struct ByRank {
  struct List {
    std::int64_t rank;
    std::vector<Posted> posted;
  };
  std::vector<List> lists;

  std::vector<Posted>& with(std::int64_t rank) {
    const auto found = std::find_if(lists.begin(), lists.end(),
                                    [&](const List& list) { return list.rank == rank; });
    if (found != lists.end()) return found->posted;
    lists.push_back({rank, {}});
    return lists.back().posted;
  }
};

struct MessageLog {
  std::vector<ByRank> sent, received;
};

MessageLog message_log_of(const Schedule& schedule) {
  MessageLog log{std::vector<ByRank>(schedule.num_ranks), std::vector<ByRank>(schedule.num_ranks)};
  for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    const std::vector<ScheduleStep>& steps = schedule.ranks[rank];
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (!is_message(steps[i].kind)) continue;
      const std::optional<MessageEndpoint> end = matching_end(schedule, rank, steps[i]);
      const bool is_send =
          steps[i].kind == StepKind::send_forward || steps[i].kind == StepKind::send_backward;
      if (end)
        (is_send ? log.sent : log.received)[rank].with(end->rank).push_back(
            {static_cast<std::int64_t>(i), end->step});
    }
  }
  return log;
}

}  // namespace

std::optional<std::string> validate_message_order(const Schedule& schedule) {
  MessageLog log = message_log_of(schedule);
  for (std::int64_t from = 0; from < schedule.num_ranks; ++from) {
    for (const auto& [to, sent] : log.sent[from].lists) {
      const std::vector<Posted>& received = log.received[to].with(from);
      for (std::size_t i = 0; i < std::min(sent.size(), received.size()); ++i) {
        if (schedule.ranks[to][received[i].index] == sent[i].other) continue;
        return at_step(schedule, to, received[i].index) + ": rank " + std::to_string(from) +
               " sends " + name_of(schedule.ranks[from][sent[i].index]) + " first, in its step " +
               std::to_string(sent[i].index);
      }
    }
  }
  return std::nullopt;
}

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
