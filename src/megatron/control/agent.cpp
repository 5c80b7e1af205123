#include "megatron/control/agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <utility>

#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/base/machine.h"
#include "megatron/control/connect_to_store.h"
#include "megatron/control/store_relay.h"
#include "megatron/control/store_service.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

/// Keys of the agents. The first four are logs, one line of JSON for each event.
constexpr const char *kJoinedKey = "agents/joined", *kEndedKey = "agents/ended",
                     *kLostKey = "agents/lost", *kLeavingKey = "agents/leaving",
                     *kDecisionKey = "agents/decision";
/// Interval of the heartbeats between an agent and the leader, and the silence after which each
/// considers the other lost.
constexpr milliseconds kHeartbeatInterval{2'000}, kSilentLeaderLimit{20'000},
    kSilentMemberLimit{10'000};
/// After this silence a new launcher may take the place of a host.
constexpr milliseconds kSilentPlaceLimit{6'000};
/// Time between two checks of the heartbeats of all members. After a longer pause the leader itself
/// was suspended, and has not read them.
constexpr milliseconds kHeartbeatCheckInterval{1'000}, kLongestCheckInterval{3'000};
/// Time between two decisions when there is no event.
constexpr milliseconds kDecisionInterval{200};
/// Time for ranks to detect the loss of a host themselves.
constexpr std::chrono::seconds kLostHostDelay{5};
constexpr std::int64_t kDayMs = 86'400'000;

/// Counts up while the agent lives.
std::string alive_key(const std::string& id) { return "agents/alive/" + id; }
/// Its value: "<round> <place among the hosts of the round>".
std::string place_key(const std::string& id) { return "agents/place/" + id; }
std::string refused_key(const std::string& id) { return "agents/refused/" + id; }

/// Returns a name of this launcher that no other has, not even a later one on this host.
std::string make_id() {
  std::random_device random;
  return host_name() + "-" + std::to_string(::getpid()) + "-" + format("%08x", random());
}

std::string line_of(const Json& json) { return compact_json(json) + "\n"; }

std::string joined_line(const std::string& id, const AgentOptions& options) {
  return line_of({{"id", id},
                  {"host", host_name()},
                  {"run", options.run_name},
                  {"node_rank", options.node_rank.value_or(-1)},
                  {"num_ranks", options.num_ranks}});
}

std::string ended_line(const std::string& id, std::int64_t round, const HostResult& result) {
  return line_of({{"id", id},
                  {"round", round},
                  {"code", result.code},
                  {"description", result.description},
                  {"is_consequence", static_cast<int>(result.is_consequence)},
                  {"was_signalled", static_cast<int>(result.was_signalled)},
                  {"stopped_as_asked", static_cast<int>(result.stopped_on_request)},
                  {"since_failure_ms", result.since_failure.count()}});
}

/// Hosts the store and decides.
class LeaderAgent final : public Agent {
 public:
  LeaderAgent(const AgentOptions& options, ListeningSocket socket)
      : Agent(make_id()),
        options_(options),
        service_(std::move(socket), options.token),
        membership_(options.membership) {
    service_.append(kJoinedKey, joined_line(id(), options));
    serve();
  }

  int descriptor() const override { return service_.descriptor(); }
  bool needs_ticks() const override { return options_.membership.max_hosts > 1; }

  void serve() override {
    service_.serve();
    const auto now = std::chrono::steady_clock::now();
    check_heartbeats(now);  // before silent hosts are declared lost
    for (const Json& line : new_lines(kJoinedKey)) handle_joined(line, now);
    for (const Json& line : new_lines(kEndedKey)) handle_ended(line, now);
    for (const Json& line : new_lines(kLeavingKey)) membership_.leave(text(line, "id"));
    for (const Json& line : new_lines(kLostKey)) handle_lost(line, now);
    post_lost_host(now);
    if (!has_event_ && now - last_decision_ < kDecisionInterval) return;
    has_event_ = false;
    last_decision_ = now;
    const Decision before = std::exchange(decision_, membership_.decide(now));
    if (decision_ == before) return;
    if (decision_.round > before.round) publish_places(before.round);
    service_.set(kDecisionKey, write_decision(decision_));
  }

  const Decision& decision() const override { return decision_; }
  std::optional<std::int64_t> place() const override {
    const auto found = std::ranges::find(decision_.members, id());
    if (found == decision_.members.end()) return std::nullopt;
    return found - decision_.members.begin();
  }
  bool end_run(int code, const std::string& reason) override {
    membership_.finish(code, reason);
    has_event_ = true;
    serve();
    return true;
  }
  void report_end(std::int64_t round, const HostResult& result) override {
    service_.append(kEndedKey, ended_line(id(), round, result));
  }
  void post_failure(std::int64_t round, const RankFailure& failure) override {
    const std::string prefix = round_prefix(round) + "/";
    if (service_.find(prefix + RunStatus::kFailureKey)) return;
    for (const auto& [key, text] : RunStatus::failure_entries(failure))
      service_.set(prefix + key, text);
  }
  std::int64_t store_port() const override { return service_.port(); }
  std::string store_address() const override { return service_.address(); }
  std::string own_address() const override {
    const std::string bound = service_.address();
    return is_loopback(bound) ? service_.address_for_others() : bound;
  }
  std::string waiting_text() const override {
    const std::string text = membership_.waiting_text();
    return text.empty() ? text : text + refused_text_;
  }

  void drain_followers(milliseconds limit) override {
    const auto end = std::chrono::steady_clock::now() + limit;
    pollfd event{descriptor(), POLLIN, 0};
    while (service_.num_clients() > 0 && std::chrono::steady_clock::now() < end) {
      ::poll(&event, 1, 20);
      service_.serve();
    }
  }

 private:
  using Time = Membership::Time;

  /// Publishes the places of the members of a new round, before its decision, and removes the keys
  /// of the round before.
  void publish_places(std::int64_t round_before) {
    if (round_before > 0) service_.remove_prefix(round_prefix(round_before) + "/");
    for (std::size_t place = 0; place < decision_.members.size(); ++place)
      service_.set(place_key(decision_.members[place]),
                   std::to_string(decision_.round) + " " + std::to_string(place));
  }

  /// Takes the events out of a log. Lines that are not events are skipped: every client that has
  /// the token can write them.
  std::vector<Json> new_lines(const std::string& key) {
    std::vector<Json> lines;
    std::istringstream log(service_.take(key));
    for (std::string text; std::getline(log, text);) {
      Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
      if (line.is_object() && line.contains("id") && line["id"].is_string())
        lines.push_back(std::move(line));
      has_event_ = true;
    }
    return lines;
  }

  static std::int64_t number(const Json& line, const char* name) {
    return line.contains(name) && line[name].is_number_integer() ? line[name].get<std::int64_t>()
                                                                 : 0;
  }
  static std::string text(const Json& line, const char* name) {
    return line.contains(name) && line[name].is_string() ? line[name].get<std::string>() : "";
  }

  /// An invalid code, from a defective launcher, counts as a failure.
  static int exit_code(std::int64_t code) {
    return code < 0 || code > 255 ? 1 : static_cast<int>(code);
  }

  void handle_joined(const Json& line, Time now) {
    const std::int64_t node_rank = number(line, "node_rank");
    const std::string id = text(line, "id"), other = membership_.agent_of(node_rank);
    if (const std::string run = text(line, "run"); run != options_.run_name)
      return refuse(line, other_run_text(run));
    if (other != id && silence_of(other, now) >= kSilentPlaceLimit) lose(other, now);
    const std::string refusal =
        membership_.join({.id = id,
                          .host = text(line, "host"),
                          .node_rank = node_rank < 0 ? std::nullopt : std::optional(node_rank),
                          .num_ranks = number(line, "num_ranks")},
                         now);
    if (!refusal.empty()) return refuse(line, refusal);
    if (id != this->id()) heartbeats_.try_emplace(id, Heartbeat{"", now});
  }

  /// Refuses a launcher, and remembers this for waiting_text().
  void refuse(const Json& line, const std::string& reason) {
    service_.set(refused_key(text(line, "id")), reason);
    refused_text_ = "; the launcher of " + text(line, "host") + " was refused: " + reason;
  }

  std::string other_run_text(const std::string& run) const {
    const auto named = [](const std::string& name) {
      return name.empty() ? std::string("a run without --rdzv-id") : "the run '" + name + "'";
    };
    return "it belongs to " + named(run) + ", that of the first host to " +
           named(options_.run_name);
  }
  void handle_ended(const Json& line, Time now) {
    // A host that was declared lost may rejoin with this report.
    if (text(line, "id") != id()) heartbeats_.try_emplace(text(line, "id"), Heartbeat{"", now});
    membership_.end(text(line, "id"), number(line, "round"),
                    {.code = exit_code(number(line, "code")),
                     .description = text(line, "description"),
                     .is_consequence = number(line, "is_consequence") != 0,
                     .was_signalled = number(line, "was_signalled") != 0,
                     .stopped_on_request = number(line, "stopped_as_asked") != 0,
                     .since_failure = milliseconds(
                         std::clamp<std::int64_t>(number(line, "since_failure_ms"), 0, kDayMs))},
                    now);
  }
  void handle_lost(const Json& line, Time now) {
    const std::string id = text(line, "id");
    if (lose(id, now) && options_.progress)
      options_.progress(
          "megatron launch: host " + membership_.host_of(id) +
          " is lost: its launcher has ended, it is down, or the network to it is cut");
    if (lost_host_ && lost_host_->round == decision_.round) return;
    for (std::size_t host = 0; host < decision_.members.size(); ++host) {
      if (decision_.members[host] != id) continue;
      const std::int64_t rank = static_cast<std::int64_t>(host) * options_.num_ranks;
      lost_host_ = {decision_.round, now,
                    RankFailure{rank, text(line, "host"), 1,
                                "error: the connection to host " + text(line, "host") +
                                    " is lost: its launcher has ended, the host is down or the "
                                    "network is cut",
                                true}};
    }
  }

  /// Ends the ranks of the round after a host was lost. Usually they have detected it before.
  void post_lost_host(Time now) {
    if (!lost_host_ || now - lost_host_->since < kLostHostDelay) return;
    if (lost_host_->round == decision_.round) post_failure(lost_host_->round, lost_host_->failure);
    lost_host_.reset();
  }

  /// Returns whether the round needed the host.
  bool lose(const std::string& id, Time now) {
    const bool is_needed = membership_.lose(id, now);
    heartbeats_.erase(id);
    service_.take(alive_key(id));
    has_event_ = true;
    return is_needed;
  }

  Time::duration silence_of(const std::string& id, Time now) const {
    const auto found = heartbeats_.find(id);
    return found == heartbeats_.end() ? Time::duration(0) : now - found->second.since;
  }

  /// Reads the heartbeats of the others. After a failure it declares hosts lost that send neither
  /// the end of their ranks nor heartbeats.
  void check_heartbeats(Time now) {
    if (now - last_check_ < kHeartbeatCheckInterval) return;
    const bool was_suspended = now - last_check_ > kLongestCheckInterval;
    last_check_ = now;
    for (auto& [id, heartbeat] : heartbeats_) {
      std::string text = service_.find(alive_key(id)).value_or("");
      if (text != heartbeat.text || was_suspended) heartbeat = {std::move(text), now};
    }
    for (const std::string& id : membership_.awaited_members()) {
      if (silence_of(id, now) < kSilentMemberLimit) continue;
      if (options_.progress)
        options_.progress("megatron launch: host " + membership_.host_of(id) +
                          " is declared lost: its launcher sends no heartbeat");
      lose(id, now);
    }
  }

  struct Heartbeat {
    std::string text;
    Time since;
  };
  struct LostHost {
    std::int64_t round;
    Time since;
    RankFailure failure;
  };
  const AgentOptions options_;
  StoreService service_;
  Membership membership_;
  Decision decision_;
  std::map<std::string, Heartbeat> heartbeats_;  ///< by the agent's id
  std::optional<LostHost> lost_host_;
  std::string refused_text_;  ///< which launcher was refused last, and why
  bool has_event_ = true;     ///< since the last decision
  Time last_decision_{}, last_check_ = std::chrono::steady_clock::now();
};

/// Speaks with the leader, for itself and for the ranks of its host.
class MemberAgent final : public Agent {
 public:
  MemberAgent(const AgentOptions& options, StoreClient& upstream)
      : Agent(make_id()),
        options_(options),
        relay_(ListeningSocket({.port = 0, .loopback_only = true}), options.token, upstream) {
    // The store sends changes in their order, so that a decision never comes before the place.
    relay_.watch(place_key(id()));
    relay_.watch(kDecisionKey);
    relay_.watch(refused_key(id()));
    relay_.set_on_disconnect(kLostKey, line_of({{"id", id()}, {"host", host_name()}}));
    relay_.append(kJoinedKey, joined_line(id(), options));
  }

  int descriptor() const override { return relay_.descriptor(); }

  void serve() override {
    relay_.serve();
    if (const auto refusal = relay_.value(refused_key(id())))
      throw UserError({"the first host refuses this launcher", *refusal,
                       "start one launcher on each host, with a --node-rank of its own, and the "
                       "same --nproc-per-node and --rdzv-id"});
    if (const auto text = relay_.value(kDecisionKey); text && *text != text_) {
      const std::int64_t before = decision_.round;
      decision_ = read_decision(*text);
      text_ = *text;
      if (decision_.round > before && before > 0) relay_.forget_prefix(round_prefix(before) + "/");
    }
    relay_.send_heartbeat(alive_key(id()), kHeartbeatInterval);
  }

  bool needs_ticks() const override { return true; }

  std::string lost_reason() const override {
    if (decision_.kind == Decision::Kind::end) return "";
    if (!relay_.lost_reason().empty()) return relay_.lost_reason();
    // Before the first round the leader may be loading its libraries.
    const milliseconds silence = relay_.silence();
    const milliseconds limit =
        decision_.round == 0 ? options_.membership.join_timeout : kSilentLeaderLimit;
    if (silence < limit) return "";
    return format("it has not answered for %.0f s: it is stopped, or the network is cut",
                  static_cast<double>(silence.count()) / 1000);
  }

  const Decision& decision() const override { return decision_; }
  std::optional<std::int64_t> place() const override {
    std::istringstream words(relay_.value(place_key(id())).value_or(""));
    std::int64_t round = 0, place = 0;
    if (!(words >> round >> place) || round != decision_.round) return std::nullopt;
    return place;
  }
  bool leave() override {
    if (!options_.membership.can_grow || !lost_reason().empty()) return false;
    relay_.append(kLeavingKey, line_of({{"id", id()}}));
    return true;
  }
  void report_end(std::int64_t round, const HostResult& result) override {
    relay_.append(kEndedKey, ended_line(id(), round, result));
  }
  void post_failure(std::int64_t round, const RankFailure& failure) override {
    const std::string prefix = round_prefix(round) + "/";
    for (const auto& [key, text] : RunStatus::failure_entries(failure))
      relay_.compare_set(prefix + key, "", text);
  }
  std::int64_t store_port() const override { return relay_.port(); }
  std::string store_address() const override { return relay_.address(); }
  std::string own_address() const override { return relay_.own_address(); }

 private:
  const AgentOptions options_;
  StoreRelay relay_;
  Decision decision_;
  std::string text_;  ///< of the decision
};

std::unique_ptr<Agent> lead(const AgentOptions& options) {
  const bool is_one_host = options.membership.max_hosts == 1 && is_loopback(options.master_addr);
  return std::make_unique<LeaderAgent>(options,
                                       ListeningSocket({.port = options.master_port,
                                                        .loopback_only = is_one_host,
                                                        .address_of = options.master_addr}));
}

std::unique_ptr<Agent> follow(const AgentOptions& options) {
  const StoreAddress address{options.master_addr, options.master_port,
                             "the launcher of the first host"};
  const auto client = connect_to_store(
      address, {.timeout = options.membership.join_timeout,
                .token = options.token,
                .progress =
                    [&](double waited_s, const std::string& reason) {
                      if (options.progress)
                        options.progress("waiting for " + address.owner + " at " + address.text() +
                                         format(" (%.0f s): ", waited_s) + reason);
                    },
                .is_cancelled = options.is_cancelled});
  return std::make_unique<MemberAgent>(options, *client);
}

}  // namespace

std::string round_prefix(std::int64_t round) { return "/megatron//" + std::to_string(round - 1); }

std::unique_ptr<Agent> Agent::join(const AgentOptions& options) {
  if (options.node_rank) return *options.node_rank == 0 ? lead(options) : follow(options);
  if (!is_address_of_this_host(options.master_addr)) return follow(options);
  try {
    return lead(options);
  } catch (const PortInUse&) {
    return follow(options);  // by another launcher of this host, or follow() says what it is
  }
}

}  // namespace megatron
