#include "megatron/control/membership.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/base/exit_codes.h"
#include "megatron/base/json.h"
#include "megatron/base/words.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// A round that fails sooner than this did nothing useful.
constexpr std::chrono::seconds kQuickFailure{60};
constexpr milliseconds kFirstBackoff{1'000}, kMaxBackoff{30'000};
/// Failures in a row that are followed by a restart at once.
constexpr std::int64_t kFreeRestarts = 2;

/// Failures that are this close together are ordered by their exit codes: launchers detect the end
/// of a rank at slightly different times.
constexpr milliseconds kSameTime{500};
/// Longest wait of a start for further hosts, in settle times: a host that rejoins repeatedly does
/// not delay it forever.
constexpr int kMaxSettleTimes = 4;

/// Orders exit codes by how likely they are the cause: 1 is also that of a rank whose peer is lost.
int severity(const HostResult& result) { return result.code == 0 ? 0 : result.code == 1 ? 1 : 2; }

/// Orders results by how much they explain: a failure of the host's own, a stop that a signal asked
/// for, the consequence of what happened elsewhere.
int order_of(const HostResult& result) {
  return result.is_consequence ? 2 : result.stopped_on_request ? 1 : 0;
}

std::string hosts_text(std::int64_t count) {
  return std::to_string(count) + (count == 1 ? " host" : " hosts");
}

}  // namespace

std::string write_decision(const Decision& decision) {
  const Json json{{"kind", static_cast<int>(decision.kind)},
                  {"round", decision.round},
                  {"num_hosts", decision.num_hosts},
                  {"restarts", decision.restarts},
                  {"reason", decision.reason},
                  {"code", decision.code},
                  {"is_restart", static_cast<int>(decision.is_restart)},
                  {"blame", decision.blame}};
  return compact_json(json);
}

Decision read_decision(const std::string& text) {
  const std::string source = "a decision of the first launcher";
  const JsonCursor json(parse_json(text, source), source);
  Decision decision{.round = json["round"].integer(),
                    .num_hosts = json["num_hosts"].integer(),
                    .restarts = json["restarts"].integer(),
                    .reason = json["reason"].text(),
                    .code = static_cast<int>(json["code"].integer()),
                    .is_restart = json["is_restart"].integer() != 0,
                    .blame = json["blame"].text()};
  const std::int64_t kind = json["kind"].integer();
  if (kind < 0 || kind > static_cast<std::int64_t>(Decision::Kind::end) || decision.code < 0 ||
      decision.code > 255)
    throw UserError({source, "is not one: " + text.substr(0, 200), "use one version on all hosts"});
  decision.kind = static_cast<Decision::Kind>(kind);
  return decision;
}

Membership::Agent* Membership::find(const std::string& id) {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? nullptr : &agents_[found->second];
}

std::string Membership::join(const Joining& joining, Time now) {
  if (find(joining.id)) return "";
  for (const Agent& other : agents_) {
    if (!is_available(other)) continue;
    if (joining.node_rank && joining.node_rank == other.node_rank)
      return "host " + std::to_string(*joining.node_rank) + " was started twice, on " + other.host +
             " and on " + joining.host;
    if (joining.num_ranks != other.num_ranks)
      return std::to_string(joining.num_ranks) + " ranks on " + joining.host + ", but " +
             std::to_string(other.num_ranks) + " on " + other.host;
  }
  numbers_[joining.id] = agents_.size();
  agents_.push_back({.id = joining.id,
                     .host = joining.host,
                     .node_rank = joining.node_rank,
                     .order = static_cast<std::int64_t>(agents_.size()),
                     .num_ranks = joining.num_ranks,
                     .available_since = now});
  return "";
}

std::string Membership::host_of(const std::string& id) const {
  const auto found = numbers_.find(id);
  return found == numbers_.end() ? "" : agents_[found->second].host;
}

std::string Membership::agent_of(std::int64_t node_rank) const {
  for (const Agent& agent : agents_) {
    if (is_available(agent) && agent.node_rank == node_rank) return agent.id;
  }
  return "";
}

void Membership::end(const std::string& id, std::int64_t round, const HostResult& result,
                     Time now) {
  Agent* agent = find(id);
  if (!agent) return;
  if (std::exchange(agent->is_lost, false)) agent->available_since = now;
  if (round != decision_.round || agent->result || !agent->is_member) return;
  agent->result = result;
  agent->failed_at = now - result.since_failure;
  const bool is_requested_stop = stop_requested_ && result.stopped_on_request;
  if (result.code != 0 && !is_requested_stop && !ending_since_) ending_since_ = now;
}

void Membership::leave(const std::string& id) {
  if (Agent* agent = find(id)) agent->is_leaving = true;
}

bool Membership::lose(const std::string& id, Time now) {
  Agent* agent = find(id);
  if (!agent || agent->is_lost) return false;
  agent->is_lost = true;
  if (!is_running_ || !agent->is_member || agent->result) return false;
  agent->result = HostResult{1, "host " + agent->host +
                                    " is lost: its launcher has ended, it is "
                                    "down, or the network to it is cut"};
  agent->failed_at = now;
  if (!ending_since_) ending_since_ = now;
  return true;
}

const Decision& Membership::decide(Time now) {
  if (decision_.kind == Decision::Kind::end) return decision_;
  if (is_running_) watch_round(now);
  if (!is_running_ && decision_.kind != Decision::Kind::end) form(now);
  return decision_;
}

/// Returns the agents that can run ranks, in the order of their hosts.
std::vector<const Membership::Agent*> Membership::candidates() const {
  std::vector<const Agent*> found;
  for (const Agent& agent : agents_) {
    if (is_available(agent)) found.push_back(&agent);
  }
  std::ranges::stable_sort(found, [](const Agent* one, const Agent* other) {
    constexpr std::int64_t kLast = INT64_MAX;
    return std::pair(one->node_rank.value_or(kLast), one->order) <
           std::pair(other->node_rank.value_or(kLast), other->order);
  });
  return found;
}

/// Returns why the run cannot have that many hosts. The answer is cached, because it takes time.
const std::string& Membership::refusal(std::int64_t hosts) const {
  const auto [place, is_new] = refusals_.try_emplace(hosts);
  if (is_new && options_.refusal) place->second = options_.refusal(hosts);
  return place->second;
}

/// Returns the largest number of hosts, at most `hosts`, that the run can have; 0 if there is none.
std::int64_t Membership::largest_fit(std::int64_t hosts) const {
  for (hosts = std::min(hosts, options_.max_hosts); hosts >= options_.min_hosts; --hosts) {
    if (refusal(hosts).empty()) return hosts;
  }
  return 0;
}

/// Between two rounds: begins the next one when its hosts have joined.
void Membership::form(Time now) {
  if (!forming_since_) forming_since_ = now;
  std::vector<const Agent*> hosts = candidates();
  const auto count = static_cast<std::int64_t>(hosts.size());
  if (count < options_.min_hosts) {
    enough_since_.reset();
    return end_if_overdue(now, waiting_text() + " after " +
                                   std::to_string(options_.join_timeout.count() / 1000) +
                                   " s: start the launcher on the others, or lower --nnodes");
  }
  if (!enough_since_) enough_since_ = now;
  // Agents of the round before have not left; only the first round waits for more.
  const bool is_last_call = decision_.round == 0 && count < options_.max_hosts &&
                            now - *enough_since_ < options_.last_call;
  if (is_last_call || (begin_not_before_ && now < *begin_not_before_)) return;
  begin_not_before_.reset();
  const std::int64_t fit = largest_fit(count);
  if (fit == 0)
    return end_if_overdue(now, "no number of hosts from " + std::to_string(options_.min_hosts) +
                                   " to " + std::to_string(std::min(count, options_.max_hosts)) +
                                   " fits the run: with " + hosts_text(options_.min_hosts) + ", " +
                                   refusal(options_.min_hosts));
  hosts.resize(static_cast<std::size_t>(fit));
  begin_round(hosts, now);
}

void Membership::end_if_overdue(Time now, const std::string& reason) {
  const bool more_can_join = static_cast<std::int64_t>(candidates().size()) < options_.max_hosts;
  if (more_can_join && now - *forming_since_ < options_.join_timeout) return;
  // Before the first round it is the user's mistake; later, hosts are missing that had joined.
  finish(decision_.round == 0 ? 2 : last_code_, reason);
}

void Membership::begin_round(const std::vector<const Agent*>& hosts, Time now) {
  decision_.kind = Decision::Kind::run;
  ++decision_.round;
  decision_.members.clear();
  for (const Agent* host : hosts) decision_.members.push_back(host->id);
  decision_.num_hosts = static_cast<std::int64_t>(hosts.size());
  for (Agent& agent : agents_) {
    agent.result.reset();
    agent.is_member = false;
  }
  for (const std::string& id : decision_.members) find(id)->is_member = true;
  is_running_ = true;
  stop_requested_ = host_leaves_ = false;
  round_start_ = now;
  forming_since_.reset();
  ending_since_.reset();
  begin_not_before_.reset();
}

/// Returns whether the hosts that wait for a place joined some time ago.
bool Membership::new_hosts_have_settled(Time now) const {
  Time first = now, last = round_start_;
  for (const Agent* agent : candidates()) {
    if (agent->is_member) continue;
    first = std::min(first, agent->available_since);
    last = std::max(last, agent->available_since);
  }
  return now - last >= options_.settle_time ||
         now - std::max(first, round_start_) >= kMaxSettleTimes * options_.settle_time;
}

void Membership::request_stop(const std::string& reason) {
  decision_.kind = Decision::Kind::stop;
  decision_.reason = reason;
  stop_requested_ = true;
}

/// During a round: ends it when its hosts have ended, and requests its end when more hosts are
/// available or one leaves.
void Membership::watch_round(Time now) {
  const bool all_ended = std::ranges::all_of(
      decision_.members, [&](const std::string& id) { return find(id)->result.has_value(); });
  if (all_ended) return end_round(now);
  if (ending_since_) {
    if (now - *ending_since_ < options_.self_end_time) return;
    decision_.kind = Decision::Kind::abort;
    if (now - *ending_since_ < options_.self_end_time + options_.end_timeout) return;
    for (const std::string& id : awaited_members()) lose(id, now);  // its ranks cannot be killed
    return end_round(now);
  }
  if (!options_.can_grow) return;
  const auto leaving = std::ranges::find_if(agents_, [this](const Agent& agent) {
    return agent.is_leaving && agent.is_member && !agent.result;
  });
  const bool is_running = decision_.kind == Decision::Kind::run;
  // While the run stops for others, what matters is whether it can continue afterwards.
  if (leaving != agents_.end() && !host_leaves_ &&
      (is_running || (stop_requested_ && !can_continue()))) {
    host_leaves_ = true;
    return request_stop("host " + leaving->host + " leaves the run" +
                        (can_continue() ? "" : ", which needs " + hosts_text(options_.min_hosts)));
  }
  if (!is_running) return;
  const auto own = static_cast<std::int64_t>(decision_.members.size()),
             here = static_cast<std::int64_t>(candidates().size());
  if (std::min(here, options_.max_hosts) <= own || !new_hosts_have_settled(now)) return;
  const std::int64_t fit = largest_fit(here);
  if (fit <= own) return;
  request_stop(hosts_text(fit) + " are available instead of " + std::to_string(own));
}

/// Returns the agent of the round whose failure came first and was not caused by another's.
const Membership::Agent& Membership::cause_of_end() {
  std::vector<const Agent*> failed;
  for (const std::string& id : decision_.members) {
    const Agent* agent = find(id);
    if (agent->result->code != 0) failed.push_back(agent);
  }
  if (failed.empty()) return *find(decision_.members.front());
  std::ranges::stable_sort(failed, [](const Agent* one, const Agent* other) {
    return std::pair(order_of(*one->result), one->failed_at) <
           std::pair(order_of(*other->result), other->failed_at);
  });
  const Agent* cause = failed.front();
  for (const Agent* other : failed) {
    if (order_of(*other->result) == order_of(*cause->result) &&
        other->failed_at - failed.front()->failed_at < kSameTime &&
        severity(*other->result) > severity(*cause->result))
      cause = other;
  }
  return *cause;
}

void Membership::end_round(Time now) {
  is_running_ = false;
  const Agent& cause = cause_of_end();
  const HostResult& result = *cause.result;
  // A host that leaves during a failure does not stop the run.
  const bool continues = can_continue();
  const bool was_signalled = std::ranges::any_of(decision_.members, [&](const std::string& id) {
    const Agent& agent = *find(id);
    return agent.result->was_signalled && agent.result->code != 0 &&
           !(agent.is_leaving && continues);
  });
  if (was_signalled) return finish(result.code, result.description);
  const bool has_ended_by_itself = std::ranges::all_of(
      decision_.members, [&](const std::string& id) { return find(id)->result->code == 0; });
  if (has_ended_by_itself) return finish(0, "");
  if (host_leaves_ && result.code == 143 && !continues) return finish(143, decision_.reason);
  if (stop_requested_ && (result.code == 0 || result.code == 143)) {
    // A run that ended by itself in the meantime resumes at its end, and ends again.
    decision_.kind = Decision::Kind::wait;
    decision_.is_restart = false;
    return;
  }
  if (is_final(result.code) || decision_.restarts == options_.max_restarts)
    return finish(result.code, result.description);
  ++failures_[cause.host];
  ++decision_.restarts;
  decision_.kind = Decision::Kind::wait;
  decision_.reason = result.description;
  last_code_ = result.code;
  decision_.blame = blame();
  decision_.is_restart = true;
  quick_failures_ = now - round_start_ < kQuickFailure ? quick_failures_ + 1 : 0;
  begin_not_before_ = now + backoff();
}

void Membership::finish(int code, const std::string& reason) {
  if (decision_.kind == Decision::Kind::end) return;
  decision_.kind = Decision::Kind::end;
  decision_.code = code;
  decision_.reason = reason;
}

bool Membership::is_final(int code) {
  // A mistake of the user, a requested stop (SIGINT, SIGTERM), and a result that was wrong when it
  // was computed again.
  constexpr std::array kFinal{2, kExitFailedOnResultValidation, 128 + SIGINT, 128 + SIGTERM};
  return std::ranges::count(kFinal, code) > 0;
}

milliseconds Membership::backoff() const {
  if (quick_failures_ <= kFreeRestarts) return milliseconds(0);
  const std::int64_t doublings = std::min<std::int64_t>(quick_failures_ - kFreeRestarts - 1, 16);
  return std::min(kMaxBackoff, kFirstBackoff * (std::int64_t{1} << doublings));
}

std::vector<std::string> Membership::awaited_members() const {
  std::vector<std::string> awaited;
  const bool is_ending = std::ranges::any_of(agents_, [this](const Agent& agent) {
    return agent.is_member && agent.result && (agent.result->code != 0 || agent.is_lost);
  });
  if (!is_running_ || !is_ending) return awaited;
  for (const Agent& agent : agents_) {
    if (agent.is_member && !agent.result) awaited.push_back(agent.id);
  }
  return awaited;
}

std::string Membership::waiting_text() const {
  const std::string wanted =
      options_.min_hosts == options_.max_hosts
          ? std::to_string(options_.max_hosts)
          : std::to_string(options_.min_hosts) + " to " + std::to_string(options_.max_hosts);
  const auto count = static_cast<std::int64_t>(candidates().size());
  if (begin_not_before_ && count >= options_.min_hosts)
    return "the last " + std::to_string(quick_failures_) +
           " starts have failed within a minute each, so the next one is delayed";
  constexpr std::int64_t kMostNames = 16;
  if (const std::vector<std::string> awaited = awaited_members(); !awaited.empty()) {
    const std::size_t more = awaited.size() - 1;
    return "the ranks of " + host_of(awaited.front()) +
           (more == 0 ? ""
                      : " and of " + std::to_string(more) + " more host" + (more == 1 ? "" : "s")) +
           " have not ended";
  }
  std::string names;
  std::int64_t num_names = 0;
  for (const Agent* host : candidates()) {
    if (num_names++ == kMostNames) break;
    names += (names.empty() ? "" : ", ") + host->host;
  }
  if (count > kMostNames) names += " and " + std::to_string(count - kMostNames) + " more";
  const bool is_unfit = count >= options_.min_hosts && largest_fit(count) == 0;
  return std::to_string(count) + " of " + wanted + " hosts " + (count == 1 ? "is" : "are") +
         " available" + (names.empty() ? "" : " (" + names + ")") +
         (is_unfit ? ", and the run does not fit so few" : "");
}

std::string Membership::blame() const {
  std::vector<std::pair<std::string, std::int64_t>> hosts(failures_.begin(), failures_.end());
  std::ranges::stable_sort(
      hosts, [](const auto& one, const auto& other) { return one.second > other.second; });
  return joined_text(hosts, ", ", [](const auto& failed) {
    return failed.first + " (" + std::to_string(failed.second) + ")";
  });
}

}  // namespace megatron
