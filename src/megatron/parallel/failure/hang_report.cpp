#include "megatron/parallel/failure/hang_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "megatron/base/json.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using Kind = RankState::Kind;

constexpr std::size_t kMaxDetails = 4;

Kind kind_of(const RankStates& states, std::int64_t rank) {
  const auto found = states.find(rank);
  return found == states.end() ? Kind::unknown : found->second.kind;
}

/// Returns `missing` and all ranks that those wait for, in order of discovery.
std::vector<std::int64_t> reachable_ranks(const std::vector<std::int64_t>& missing,
                                          const RankStates& states) {
  std::vector<std::int64_t> ranks = missing;
  for (std::size_t next = 0; next < ranks.size(); ++next) {
    if (kind_of(states, ranks[next]) != Kind::waiting) continue;
    for (const std::int64_t other : states.at(ranks[next]).wait.missing) {
      if (std::ranges::find(ranks, other) == ranks.end()) ranks.push_back(other);
    }
  }
  return ranks;
}

/// Returns the ranks that block the others: first those that are stopped or silent, else running
/// ones, else unknown ones. Returns nothing when all ranks wait.
std::vector<std::int64_t> find_culprits(std::vector<std::int64_t> ranks, const RankStates& states) {
  std::ranges::sort(ranks);
  const auto is_unresponsive = [](Kind kind) {
    return kind == Kind::stopped || kind == Kind::silent;
  };
  for (const auto& is_culprit :
       {std::function<bool(Kind)>(is_unresponsive),
        std::function<bool(Kind)>([](Kind kind) { return kind == Kind::running; }),
        std::function<bool(Kind)>([](Kind kind) { return kind == Kind::unknown; })}) {
    std::vector<std::int64_t> culprits;
    std::ranges::copy_if(ranks, std::back_inserter(culprits),
                         [&](std::int64_t rank) { return is_culprit(kind_of(states, rank)); });
    if (!culprits.empty()) return culprits;
  }
  return {};
}

std::string state_text(std::int64_t rank, const RankState& state) {
  const std::string who = name_ranks({rank}) + (state.host.empty() ? "" : " on " + state.host);
  if (state.kind == Kind::stopped)
    return who + " is stopped (process " + std::to_string(state.process) + ")";
  if (state.kind == Kind::silent)
    return who + " does not answer: it is stopped, or the network to it is cut";
  const std::string when =
      state.wait.iteration >= 0 ? ", in iteration " + std::to_string(state.wait.iteration) : "";
  return who + " is outside of every call" + when;
}

std::string wait_text(std::int64_t rank, const RankState& state) {
  return name_ranks({rank}) + " waits for " + name_ranks(state.wait.missing) + " in " +
         state.wait.call;
}

std::string details_text(const std::vector<std::string>& details) {
  std::string text;
  for (std::size_t i = 0; i < details.size(); ++i) text += (i == 0 ? " (" : "; ") + details[i];
  return details.empty() ? "" : text + ")";
}

}  // namespace

std::string hang_text(const TimedOutRank& waiter, const RankStates& states) {
  const std::vector<std::int64_t> ranks = reachable_ranks(waiter.missing, states);
  const std::vector<std::int64_t> culprits = find_culprits(ranks, states);
  std::vector<std::string> details;
  const auto own = states.find(waiter.rank);
  if (own != states.end() && own->second.wait.iteration >= 0)
    details.push_back("iteration " + std::to_string(own->second.wait.iteration));
  for (const std::int64_t rank : culprits) {
    if (kind_of(states, rank) != Kind::unknown && details.size() <= kMaxDetails)
      details.push_back(state_text(rank, states.at(rank)));
  }
  const bool is_direct = std::ranges::all_of(
      culprits, [&](std::int64_t rank) { return std::ranges::count(waiter.missing, rank) > 0; });
  for (const std::int64_t rank : ranks) {
    const bool explains = kind_of(states, rank) == Kind::waiting && rank != waiter.rank &&
                          (!is_direct || culprits.empty());
    if (explains && details.size() <= 2 * kMaxDetails)
      details.push_back(wait_text(rank, states.at(rank)));
  }
  const std::vector<std::int64_t>& blamed = culprits.empty() ? waiter.missing : culprits;
  return name_ranks(blamed) + (blamed.size() == 1 ? " has" : " have") + " not arrived after " +
         time_text(waiter.timeout) + details_text(details);
}

std::vector<std::int64_t> unknown_ranks(const std::vector<std::int64_t>& missing,
                                        const RankStates& states) {
  std::vector<std::int64_t> ranks = reachable_ranks(missing, states);
  std::erase_if(ranks, [&](std::int64_t rank) { return kind_of(states, rank) != Kind::unknown; });
  return ranks;
}

std::string report_hang(HostStatus& host_status, const TimedOutRank& waiter) {
  RankStates states = host_status.states();
  if (!unknown_ranks(waiter.missing, states).empty()) {
    if (const auto ask = host_status.state_query()) ask(waiter.missing, states);
  }
  return host_status.failed() ? host_status.failure() : hang_text(waiter, states);
}

std::string write_states(const RankStates& states) {
  Json list = Json::array();
  for (const auto& [rank, state] : states) {
    list.push_back({{"rank", rank},
                    {"kind", static_cast<int>(state.kind)},
                    {"call", state.wait.call},
                    {"missing", state.wait.missing},
                    {"iteration", state.wait.iteration},
                    {"process", state.process},
                    {"host", state.host}});
  }
  return list.dump(-1, ' ', false, Json::error_handler_t::replace);
}

RankStates read_states(const std::string& text) {
  const std::string source = "the states of a host's ranks";
  RankStates states;
  for (const Json& item : parse_json(text, source)) {
    const auto kind = static_cast<Kind>(json_int(item, "kind", source));
    RankWait wait{kind == Kind::waiting, json_string(item, "call", source),
                  item.at("missing").get<std::vector<std::int64_t>>(),
                  json_int(item, "iteration", source)};
    states[json_int(item, "rank", source)] = {kind, std::move(wait),
                                              json_int(item, "process", source),
                                              json_string(item, "host", source)};
  }
  return states;
}

}  // namespace megatron
