#include "megatron/parallel/failure/dump_analysis.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "megatron/base/format.h"
#include "megatron/base/json_text.h"
#include "megatron/base/words.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

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

constexpr std::size_t kMaxRows = 64;    ///< of the table of ranks
constexpr std::size_t kMaxCalls = 8;    ///< blocked calls that are listed
constexpr std::size_t kMaxStacks = 4;   ///< ranks whose stacks are shown
constexpr std::size_t kMaxFrames = 24;  ///< of a stack

std::string tensor_text(const CallRecord& call) {
  if (call.type.empty()) return "no tensor";
  return call.type + " [" + joined_text(call.shape) + "]";
}

const RankDump* dump_of(const std::vector<RankDump>& dumps, std::int64_t rank) {
  const auto found = std::ranges::find(dumps, rank, &RankDump::rank);
  return found == dumps.end() ? nullptr : &*found;
}

std::string rank_row(const RankDump& dump) {
  std::string what = "no call yet";
  if (!dump.calls.empty()) {
    const CallRecord& last = dump.calls.back();
    what = (last.left_s == 0 ? "in " : "after ") + describe_with_place(last);
  }
  return format("%6lld  %-16s %8lld  %-8s %9lld  %s\n", static_cast<long long>(dump.rank),
                dump.host.substr(0, 16).c_str(), static_cast<long long>(dump.process),
                dump.state.c_str(), static_cast<long long>(dump.wait.iteration), what.c_str());
}

std::string blocked_text(const BlockedCall& blocked) {
  std::string text = "  " + describe_with_place(blocked.call) + ", call " +
                     std::to_string(blocked.call.group_number) + " of the group (" +
                     ranks_text(blocked.group.ranks) + "), " + tensor_text(blocked.call) +
                     ":\n    " + ranks_text(blocked.waiting) +
                     format(" waited %.1f s", blocked.waited_s);
  if (!blocked.missing.empty()) text += " for " + ranks_text(blocked.missing);
  if (!blocked.silent.empty())
    text += std::string(blocked.missing.empty() ? " for " : " and ") + ranks_text(blocked.silent) +
            ", without a report";
  if (!blocked.unknown.empty())
    text += "; whether " + ranks_text(blocked.unknown) +
            (blocked.unknown.size() == 1 ? " has" : " have") + " made the call is unknown";
  else if (blocked.missing.empty() && blocked.silent.empty())
    text += "; all have made the call, so the transfer itself is stuck";
  return text + "\n";
}

std::string difference_text(const DifferentCalls& different) {
  return "  on " + different.group.axis + " (" + ranks_text(different.group.ranks) + "), the " +
         different.difference + " differs in call " + std::to_string(different.call.group_number) +
         ":\n    rank " + std::to_string(different.rank) + ": " +
         describe_with_place(different.call) + ", " + tensor_text(different.call) + "\n    rank " +
         std::to_string(different.other_rank) + ": " + describe_with_place(different.other) + ", " +
         tensor_text(different.other) + "\n";
}

std::string no_culprit_text(const HangAnalysis& analysis) {
  std::set<std::int64_t> unknown;
  for (const BlockedCall& blocked : analysis.blocked)
    unknown.insert(blocked.unknown.begin(), blocked.unknown.end());
  if (unknown.empty()) return "Every rank has arrived, but data does not move.\n";
  return "The others may wait for " + ranks_text({unknown.begin(), unknown.end()}) +
         ", whose report cannot be read.\n";
}

std::string verdict_text(const std::vector<RankDump>& dumps, const HangAnalysis& analysis) {
  if (!analysis.different.empty())
    return "The ranks make different calls; the first difference is the cause.\n";
  if (analysis.blocked.empty() && analysis.dead.empty())
    return "No rank waits longer than a second.\n";
  if (analysis.culprits.empty()) return no_culprit_text(analysis);
  std::string text = ranks_text(analysis.culprits);
  if (!analysis.dead.empty())
    text += " died; the others ended because of that.\n";
  else
    text += std::string(analysis.culprits.size() == 1 ? " blocks" : " block") + " the others.\n";
  for (const std::int64_t rank : analysis.culprits) {
    const RankDump* dump = dump_of(dumps, rank);
    if (dump == nullptr) {
      text += "  rank " + std::to_string(rank) + " wrote no report: look at its host\n";
      continue;
    }
    text += "  rank " + std::to_string(rank) + " on " + dump->host + " (process " +
            std::to_string(dump->process) + ") is " + dump->state;
    if (dump->wait.iteration >= 0) text += ", in iteration " + std::to_string(dump->wait.iteration);
    if (!dump->calls.empty())
      text += std::string(dump->calls.back().left_s == 0 ? ", in " : ", after ") +
              describe_with_place(dump->calls.back());
    text += "\n";
  }
  return text;
}

std::string stacks_text(const std::vector<RankDump>& dumps, const HangAnalysis& analysis) {
  std::string text;
  std::size_t shown = 0;
  for (const std::int64_t rank : analysis.culprits) {
    const RankDump* dump = dump_of(dumps, rank);
    if (dump == nullptr || dump->threads.empty()) continue;
    const ThreadStack& main = dump->threads.front();
    // A rank that ends takes no stack of its main thread.
    if (main.thread != dump->process) continue;
    if (shown++ == kMaxStacks) break;
    text += "\nMain thread of rank " + std::to_string(rank) + "\n";
    for (std::size_t i = 0; i < std::min(kMaxFrames, main.frames.size()); ++i)
      text += format("  %2zu  %s\n", i, main.frames[i].c_str());
  }
  return text;
}

}  // namespace

HangAnalysis analyze_dumps(const std::vector<RankDump>& dumps,
                           std::vector<std::int64_t> unreadable) {
  return Analysis(dumps, std::move(unreadable)).run();
}

std::string hang_report_text(const std::vector<RankDump>& dumps, const HangAnalysis& analysis) {
  std::string text = format("%6s  %-16s %8s  %-8s %9s  %s\n", "rank", "host", "process", "state",
                            "iteration", "last call");
  for (std::size_t i = 0; i < std::min(kMaxRows, dumps.size()); ++i) text += rank_row(dumps[i]);
  if (dumps.size() > kMaxRows)
    text += format("   and %zu more ranks (--json lists all)\n", dumps.size() - kMaxRows);
  if (!analysis.without_dump.empty())
    text +=
        "No report of " + ranks_text(analysis.without_dump) +
        (dumps.front().reason == "SIGUSR2" ? ": send SIGUSR2 to the launcher of each host" : "") +
        ".\n";
  if (!analysis.unreadable.empty())
    text +=
        "What " + ranks_text(analysis.unreadable) + " did is unknown: the report cannot be read.\n";
  text += "Written because: " + dumps.front().reason + "\n";
  if (!analysis.different.empty()) text += "\nDifferent calls\n";
  for (const DifferentCalls& different : analysis.different) text += difference_text(different);
  if (!analysis.blocked.empty()) text += "\nCalls that are not complete, longest wait first\n";
  for (std::size_t i = 0; i < std::min(kMaxCalls, analysis.blocked.size()); ++i)
    text += blocked_text(analysis.blocked[i]);
  if (analysis.blocked.size() > kMaxCalls)
    text += format("  and %zu more\n", analysis.blocked.size() - kMaxCalls);
  return text + "\n" + verdict_text(dumps, analysis) + stacks_text(dumps, analysis);
}

std::string hang_report_json(const std::vector<RankDump>& dumps, const HangAnalysis& analysis) {
  JsonText ranks = JsonText::array(), blocked = JsonText::array(), different = JsonText::array();
  for (const RankDump& dump : dumps)
    ranks.push_back(
        {{"rank", dump.rank},
         {"host", dump.host},
         {"process", dump.process},
         {"state", dump.state},
         {"iteration", dump.wait.iteration},
         {"last_call", dump.calls.empty() ? "" : describe_with_place(dump.calls.back())},
         {"stack",
          dump.threads.empty() ? std::vector<std::string>() : dump.threads.front().frames}});
  for (const BlockedCall& call : analysis.blocked)
    blocked.push_back({{"call", describe_with_place(call.call)},
                       {"axis", call.call.axis},
                       {"layer", call.call.layer},
                       {"number", call.call.group_number},
                       {"group", call.group.ranks},
                       {"waiting", call.waiting},
                       {"missing", call.missing},
                       {"silent", call.silent},
                       {"unknown", call.unknown},
                       {"waited_s", call.waited_s}});
  for (const DifferentCalls& call : analysis.different)
    different.push_back(
        {{"difference", call.difference},
         {"number", call.call.group_number},
         {"group", call.group.ranks},
         {"ranks", JsonText::array({call.rank, call.other_rank})},
         {"calls",
          JsonText::array({describe_with_place(call.call), describe_with_place(call.other)})},
         {"tensors", JsonText::array({tensor_text(call.call), tensor_text(call.other)})}});
  const JsonText report{{"reason", dumps.front().reason},
                        {"culprits", analysis.culprits},
                        {"without_report", analysis.without_dump},
                        {"unreadable", analysis.unreadable},
                        {"different", different},
                        {"blocked", blocked},
                        {"ranks", ranks}};
  return report.dump() + "\n";
}

}  // namespace megatron
