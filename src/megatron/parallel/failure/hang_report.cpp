#include "megatron/parallel/failure/hang_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/parallel/failure/host_status.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/shared_memory/spin_wait.h"

namespace megatron {
namespace {

using Kind = RankState::Kind;

constexpr std::size_t kMaxDetails = 4;
/// Limit of a section, in which the rank might compute for ever.
constexpr int kMostTimeouts = 10;

Kind kind_of(const RankStates& states, std::int64_t rank) {
  const auto found = states.find(rank);
  return found == states.end() ? Kind::unknown : found->second.kind;
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

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

std::string state_text(std::int64_t rank, const RankState& state) {
  const std::string who = ranks_text({rank}) + (state.host.empty() ? "" : " on " + state.host);
  if (state.kind == Kind::stopped)
    return who + " is stopped (process " + std::to_string(state.process) + ")";
  if (state.kind == Kind::silent)
    return who + " does not answer: it is stopped, or the network to it is cut";
  if (state.section)
    return who + " is " + state.section->what +
           format(", for %.0f s, with progress %.0f s ago", seconds_of(state.section->age),
                  seconds_of(state.section->since_progress));
  const std::string when =
      state.wait.iteration >= 0 ? ", in iteration " + std::to_string(state.wait.iteration) : "";
  return who + " is outside of every call" + when +
         (state.stack.empty() ? "" : ", in " + state.stack);
}

std::string wait_text(std::int64_t rank, const RankState& state) {
  return ranks_text({rank}) + " waits for " + ranks_text(state.wait.missing) + " in " +
         state.wait.call;
}

std::int64_t rank_of(const JsonCursor& rank, std::int64_t world_size, const std::string& source) {
  if (rank->is_number_integer()) {
    const auto number = rank->get<std::int64_t>();
    if (number >= 0 && number < world_size) return number;
  }
  throw UserError({source, "name " + rank->dump() + " as a rank of " + std::to_string(world_size),
                   "use one version of megatron on all hosts"});
}

std::vector<std::int64_t> missing_of(const JsonCursor& state, std::int64_t world_size,
                                     const std::string& source) {
  std::vector<std::int64_t> missing;
  for (const JsonCursor& rank : state["missing"].elements())
    missing.push_back(rank_of(rank, world_size, source));
  return missing;
}

RankSection section_from(const JsonCursor& section) {
  using std::chrono::milliseconds;
  return {.what = section["what"].text(),
          .age = milliseconds(section["age_ms"].integer()),
          .since_progress = milliseconds(section["since_progress_ms"].integer())};
}

std::string details_text(const std::vector<std::string>& details) {
  std::string text;
  for (std::size_t i = 0; i < details.size(); ++i) text += (i == 0 ? " (" : "; ") + details[i];
  return details.empty() ? "" : text + ")";
}

}  // namespace

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

bool is_worth_waiting(const TimedOutRank& waiter, const RankStates& states) {
  const std::vector<std::int64_t> culprits =
      find_culprits(reachable_ranks(waiter.missing, states), states);
  return !culprits.empty() && std::ranges::all_of(culprits, [&](std::int64_t rank) {
    const auto found = states.find(rank);
    if (found == states.end() || !found->second.section) return false;
    const RankSection& section = *found->second.section;
    return section.since_progress < waiter.timeout && section.age < kMostTimeouts * waiter.timeout;
  });
}

void add_stacks(HostStatus& host_status, const std::vector<std::int64_t>& ranks,
                RankStates& states) {
  constexpr std::size_t kMaxStacks = 4;
  std::size_t num_stacks = 0;
  for (const std::int64_t rank : ranks) {
    const bool is_asked = kind_of(states, rank) == Kind::running && states.at(rank).stack.empty();
    if (!is_asked || num_stacks == kMaxStacks) continue;
    states.at(rank).stack = host_status.request_stack(rank);
    ++num_stacks;
  }
}

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
  return ranks_text(blamed) + (blamed.size() == 1 ? " has" : " have") + " not arrived after " +
         time_text(waiter.waited.value_or(waiter.timeout)) + details_text(details);
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
  if (host_status.failed()) return host_status.failure();
  if (is_worth_waiting(waiter, states)) return {};
  add_stacks(host_status, reachable_ranks(waiter.missing, states), states);
  return hang_text(waiter, states);
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
                    {"host", state.host},
                    {"stack", state.stack}});
    if (state.section)
      list.back()["section"] = {{"what", state.section->what},
                                {"age_ms", state.section->age.count()},
                                {"since_progress_ms", state.section->since_progress.count()}};
  }
  return compact_json(list);
}

RankStates read_states(const std::string& text, std::int64_t world_size) {
  const std::string source = "the states of a host's ranks";
  RankStates states;
  for (const JsonCursor& item : JsonCursor(parse_json(text, source), source).elements()) {
    const std::int64_t number = item["kind"].integer();
    if (number < 0 || number > static_cast<std::int64_t>(Kind::silent))
      throw UserError({source, "are of kind " + std::to_string(number),
                       "use one version of megatron on all hosts"});
    const auto kind = static_cast<Kind>(number);
    RankWait wait{kind == Kind::waiting, item["call"].text(), missing_of(item, world_size, source),
                  item["iteration"].integer()};
    RankState& state = states[rank_of(item["rank"], world_size, source)];
    state = {.kind = kind,
             .wait = std::move(wait),
             .process = item["process"].integer(),
             .host = item["host"].text()};
    state.stack = item["stack"].text();
    if (const auto section = item.find("section")) state.section = section_from(*section);
  }
  return states;
}

}  // namespace megatron
