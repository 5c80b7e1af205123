#include "megatron/parallel/failure/dump_analysis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

namespace megatron {
namespace {

/// Shorter waits are part of every step.
constexpr double kShortestWaitS = 1;

using DumpOfRank = std::map<std::int64_t, const RankDump*>;

std::uint64_t num_elements(const CallRecord& call) {
  std::uint64_t count = 1;
  for (const std::int64_t size : call.shape) count *= static_cast<std::uint64_t>(size);
  return count;
}

bool can_wait(const RankDump& dump) {
  return dump.state != "stopped" && dump.state != "dead" && dump.state != "ended";
}

/// Returns whether the call is incomplete. An asynchronous call on a GPU may be complete without
/// the host's knowledge until a stream waits for it.
bool is_incomplete(const CallRecord& call, const RankDump& dump) {
  return call.left_s == 0 && (call.is_awaited || !dump.is_on_device);
}

/// Returns whether the rank has made its part of another rank's call. A call that a hung
/// rank has only begun does not count.
bool has_made_its_part(const RankDump& dump, const CallRecord& call, std::int64_t rank) {
  return std::ranges::any_of(dump.calls, [&](const CallRecord& made) {
    if (!is_part_of(made, call, rank)) return false;
    return can_wait(dump) || made.left_s != 0 || made.group_number > call.group_number;
  });
}

class Analysis {
 public:
  Analysis(const std::vector<RankDump>& dumps, std::vector<std::int64_t> unreadable)
      : dumps_(dumps) {
    found_.unreadable = std::move(unreadable);
    for (const RankDump& dump : dumps) {
      dump_of_[dump.rank] = &dump;
      for (const auto& [group, members] : dump.groups) groups_[group] = members;
    }
  }

  HangAnalysis run() {
    for (const RankDump& dump : dumps_) {
      for (const CallRecord& call : dump.calls) {
        if (is_incomplete(call, dump) && can_wait(dump)) add_blocked(dump, call);
      }
    }
    find_culprits();
    for (auto& [key, blocked] : blocked_) found_.blocked.push_back(std::move(blocked));
    std::ranges::sort(found_.blocked, std::greater<>(), &BlockedCall::waited_s);
    compare_collectives();
    compare_messages();
    const std::int64_t world_size = dumps_.empty() ? 0 : dumps_.front().world_size;
    for (std::int64_t rank = 0; rank < world_size; ++rank)
      if (!dump_of_.contains(rank) && !is_unreadable(rank)) found_.without_dump.push_back(rank);
    return std::move(found_);
  }

 private:
  CallGroup group_of(const CallRecord& call) const {
    const auto found = groups_.find(call.group);
    return found == groups_.end() ? CallGroup{call.axis, {}} : found->second;
  }

  void add_blocked(const RankDump& dump, const CallRecord& call) {
    const double waited_s = dump.time_s - call.entered_s;
    if (waited_s < kShortestWaitS) return;
    // All ranks of a collective share an entry; a message has its own.
    const bool has_partner = is_message(call.operation);
    const Key key{call.group, call.group_number, has_partner ? dump.rank : -1,
                  has_partner ? call.peer : -1};
    BlockedCall& blocked = blocked_[key];
    if (blocked.waiting.empty()) {
      blocked.call = call;
      blocked.group = group_of(call);
      find_missing(dump.rank, blocked);
    }
    blocked.waiting.push_back(dump.rank);
    // While an asynchronous call waits, the program of its rank may run on.
    if (call.is_awaited) blocked_ranks_[key].insert(dump.rank);
    blocked.waited_s = std::max(blocked.waited_s, waited_s);
  }

  void find_missing(std::int64_t rank, BlockedCall& blocked) const {
    const CallRecord& call = blocked.call;
    for (const std::int64_t other : awaited_ranks(call, rank, blocked.group.ranks)) {
      const auto dump = dump_of_.find(other);
      if (dump == dump_of_.end()) {
        (is_unreadable(other) ? blocked.unknown : blocked.silent).push_back(other);
      } else if (!has_made_its_part(*dump->second, call, rank)) {
        blocked.missing.push_back(other);
      }
    }
  }

  bool is_unreadable(std::int64_t rank) const {
    return std::ranges::count(found_.unreadable, rank) > 0;
  }

  static std::string difference_of(const CallRecord& one, const CallRecord& other) {
    const bool are_messages = is_message(one.operation);
    if (!are_messages && one.operation != other.operation) return "operation";
    if (one.what != other.what) return "name";
    if (one.type != other.type) return "type";
    if (!are_messages && one.peer != other.peer) return "root";
    const bool may_differ = one.is_uneven && other.is_uneven;
    return !may_differ && num_elements(one) != num_elements(other) ? "size" : "";
  }

  void add_difference(std::int64_t rank, const CallRecord& call, std::int64_t other_rank,
                      const CallRecord& other) {
    const std::string difference = difference_of(call, other);
    if (difference.empty() || !groups_with_difference_.insert(call.group).second) return;
    found_.different.push_back({group_of(call), rank, other_rank, call, other, difference});
  }

  void compare_collectives() {
    std::map<std::pair<std::string, std::uint64_t>, std::pair<std::int64_t, const CallRecord*>>
        first;
    for (const RankDump& dump : dumps_) {
      for (const CallRecord& call : dump.calls) {
        if (is_message(call.operation)) continue;
        const auto [known, is_new] =
            first.try_emplace({call.group, call.group_number}, dump.rank, &call);
        if (!is_new) add_difference(known->second.first, *known->second.second, dump.rank, call);
      }
    }
  }

  void compare_messages() {
    for (const RankDump& dump : dumps_) {
      for (const CallRecord& call : dump.calls) {
        if (call.operation != CommOperation::send || !dump_of_.contains(call.peer)) continue;
        for (const CallRecord& other : dump_of_.at(call.peer)->calls) {
          if (is_part_of(other, call, dump.rank) && other.group_number == call.group_number)
            add_difference(dump.rank, call, call.peer, other);
        }
      }
    }
  }

  void find_culprits() {
    std::set<std::int64_t> missing, waiting;
    for (const auto& [key, blocked] : blocked_) {
      missing.insert(blocked.missing.begin(), blocked.missing.end());
      missing.insert(blocked.silent.begin(), blocked.silent.end());
      if (!blocked.missing.empty() || !blocked.silent.empty())
        waiting.insert(blocked_ranks_[key].begin(), blocked_ranks_[key].end());
    }
    for (const RankDump& dump : dumps_)
      if (dump.state == "dead") found_.dead.push_back(dump.rank);
    found_.culprits = found_.dead;
    if (!found_.dead.empty()) return;
    std::ranges::set_difference(missing, waiting, std::back_inserter(found_.culprits));
    if (found_.culprits.empty()) found_.culprits.assign(missing.begin(), missing.end());
  }

  /// Group, number, and for messages sender or receiver and partner.
  using Key = std::tuple<std::string, std::uint64_t, std::int64_t, std::int64_t>;

  const std::vector<RankDump>& dumps_;
  DumpOfRank dump_of_;
  CallGroups groups_;
  std::map<Key, BlockedCall> blocked_;
  std::map<Key, std::set<std::int64_t>> blocked_ranks_;  ///< whose program waits for the call
  std::set<std::string> groups_with_difference_;
  HangAnalysis found_;
};

}  // namespace

HangAnalysis analyze_dumps(const std::vector<RankDump>& dumps,
                           std::vector<std::int64_t> unreadable) {
  return Analysis(dumps, std::move(unreadable)).run();
}

}  // namespace megatron
