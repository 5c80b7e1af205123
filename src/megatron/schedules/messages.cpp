// Collects what every rank receives, then merges it into the rank's steps as receives.
#include "megatron/schedules/messages.h"

#include <algorithm>

#include "megatron/base/error.h"

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

/// Returns the message of a computing step; nothing for other steps.
std::optional<ScheduleStep> message_of(const ScheduleStep& step, StepKind of_forward,
                                       StepKind of_backward) {
  switch (step.kind) {
    case StepKind::forward:
      return ScheduleStep{of_forward, step.microbatch, step.chunk};
    case StepKind::backward:
    case StepKind::backward_input:
      return ScheduleStep{of_backward, step.microbatch, step.chunk};
    default:
      return std::nullopt;
  }
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
  return message_of(step, StepKind::send_forward, StepKind::send_backward);
}

std::optional<ScheduleStep> receive_of(const ScheduleStep& step) {
  return message_of(step, StepKind::recv_forward, StepKind::recv_backward);
}

namespace {

/// A computing step, or a joined forward and backward.
struct StepGroup {
  std::int64_t first = 0, count = 1;
};

std::vector<ScheduleStep> computing_steps(const Schedule& schedule, std::int64_t rank) {
  std::vector<ScheduleStep> steps;
  steps.reserve(schedule.ranks[rank].size());
  for (const ScheduleStep& step : schedule.ranks[rank]) {
    MEGATRON_CHECK(step.chunk >= 0 && step.chunk < schedule.num_chunks && step.microbatch >= 0 &&
                       step.microbatch < schedule.num_microbatches,
                   "rank ", rank, ": a step of microbatch ", step.microbatch, ", chunk ",
                   step.chunk);
    if (!is_message(step.kind)) steps.push_back(step);
  }
  return steps;
}

std::vector<StepGroup> groups_of(const std::vector<ScheduleStep>& steps) {
  std::vector<StepGroup> groups;
  const auto count = static_cast<std::int64_t>(steps.size());
  for (std::int64_t i = 0; i < count; i += groups.back().count)
    groups.push_back({i, steps[i].joins_next && i + 1 < count ? 2 : 1});
  return groups;
}

/// The messages that one rank receives from another, in the order of the sends.
struct Channel {
  std::int64_t from = 0;
  std::vector<ScheduleStep> receives;
  std::vector<std::int64_t> groups{};  ///< For each receive, the group before which it is placed.
  std::size_t next = 0;
};

struct RankInbox {
  std::vector<Channel> channels{};

  Channel& from(std::int64_t rank) {
    const auto found = std::find_if(channels.begin(), channels.end(),
                                    [&](const Channel& channel) { return channel.from == rank; });
    if (found != channels.end()) return *found;
    channels.push_back({rank, {}});
    return channels.back();
  }
};

void collect_receives(const Schedule& schedule, std::int64_t rank,
                      const std::vector<ScheduleStep>& steps, std::vector<RankInbox>& inboxes) {
  for (const ScheduleStep& step : steps) {
    const std::optional<ScheduleStep> send = send_of(step);
    const std::optional<MessageEndpoint> end =
        send ? matching_end(schedule, rank, *send) : std::nullopt;
    if (end) inboxes[end->rank].from(rank).receives.push_back(end->step);
  }
}

/// Maps every step with an input to its group, by kind, chunk and microbatch.
class GroupOfReceive {
 public:
  GroupOfReceive(const Schedule& schedule, const std::vector<ScheduleStep>& steps,
                 const std::vector<StepGroup>& groups)
      : schedule_(schedule),
        groups_(2 * schedule.num_chunks * schedule.num_microbatches,
                static_cast<std::int64_t>(groups.size()) - 1) {
    for (std::size_t u = 0; u < groups.size(); ++u) {
      for (std::int64_t i = groups[u].first; i < groups[u].first + groups[u].count; ++i) {
        if (const std::optional<ScheduleStep> receive = receive_of(steps[i]))
          groups_[key(*receive)] = static_cast<std::int64_t>(u);
      }
    }
  }
  std::int64_t operator()(const ScheduleStep& receive) const { return groups_[key(receive)]; }

 private:
  std::int64_t key(const ScheduleStep& receive) const {
    const std::int64_t place = receive.chunk * schedule_.num_microbatches + receive.microbatch;
    return 2 * place + (receive.kind == StepKind::recv_backward ? 1 : 0);
  }
  const Schedule& schedule_;
  std::vector<std::int64_t> groups_;
};

/// Places each receive before every receive whose message is sent later.
void place_receives(Channel& channel, const GroupOfReceive& group_of, bool ahead) {
  channel.groups.resize(channel.receives.size());
  std::int64_t latest = -1;
  for (std::size_t i = channel.receives.size(); i-- > 0;) {
    const std::int64_t wanted =
        std::max<std::int64_t>(0, group_of(channel.receives[i]) - (ahead ? 1 : 0));
    latest = latest < 0 ? wanted : std::min(latest, wanted);
    channel.groups[i] = latest;
  }
}

std::vector<ScheduleStep> merge(const Schedule& schedule, std::int64_t rank,
                                const std::vector<ScheduleStep>& steps,
                                const std::vector<StepGroup>& groups, RankInbox& inbox) {
  std::vector<ScheduleStep> merged;
  merged.reserve(3 * steps.size());
  for (std::size_t u = 0; u < groups.size(); ++u) {
    for (Channel& channel : inbox.channels) {
      while (channel.next < channel.groups.size() &&
             channel.groups[channel.next] <= static_cast<std::int64_t>(u)) {
        merged.push_back(channel.receives[channel.next++]);
      }
    }
    const auto begin = steps.begin() + groups[u].first, end = begin + groups[u].count;
    merged.insert(merged.end(), begin, end);
    for (auto step = begin; step != end; ++step) {
      const std::optional<ScheduleStep> send = send_of(*step);
      if (send && matching_end(schedule, rank, *send)) merged.push_back(*send);
    }
  }
  return merged;
}

}  // namespace

Schedule with_messages(const Schedule& schedule, bool ahead) {
  Schedule result = schedule;
  std::vector<RankInbox> inboxes(schedule.num_ranks);
  for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    result.ranks[rank] = computing_steps(schedule, rank);
    collect_receives(schedule, rank, result.ranks[rank], inboxes);
  }
  for (std::int64_t rank = 0; rank < schedule.num_ranks; ++rank) {
    const std::vector<StepGroup> groups = groups_of(result.ranks[rank]);
    const GroupOfReceive group_of(schedule, result.ranks[rank], groups);
    for (Channel& channel : inboxes[rank].channels) place_receives(channel, group_of, ahead);
    result.ranks[rank] = merge(schedule, rank, result.ranks[rank], groups, inboxes[rank]);
  }
  return result;
}

}  // namespace megatron
