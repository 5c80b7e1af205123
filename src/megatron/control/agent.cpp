#include "megatron/control/agent.h"

#include <unistd.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

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

/// Keys of the agents. The first three are logs, one line of JSON for each event.
constexpr const char *kJoinedKey = "agents/joined", *kEndedKey = "agents/ended",
                     *kLostKey = "agents/lost", *kDecisionKey = "agents/decision";
/// Time for ranks to find out by themselves what became of a lost host.
constexpr std::chrono::seconds kLostHostDelay{5};

std::string refused_key(const std::string& id) { return "agents/refused/" + id; }

/// Returns a name of this launcher that no other has, not even a later one on this host.
std::string make_id() {
  std::random_device random;
  return host_name() + "-" + std::to_string(::getpid()) + "-" + format("%08x", random());
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string joined_line(const std::string& id, const AgentOptions& options) {
  return line_of({{"id", id},
                  {"host", host_name()},
                  {"node_rank", options.node_rank.value_or(-1)},
                  {"num_ranks", options.num_ranks}});
}

std::string ended_line(const std::string& id, std::int64_t round, const HostResult& result) {
  return line_of({{"id", id},
                  {"round", round},
                  {"code", result.code},
                  {"description", result.description},
                  {"is_consequence", static_cast<int>(result.is_consequence)},
                  {"was_signalled", static_cast<int>(result.was_signalled)}});
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
    for (const Json& line : new_lines(kJoinedKey)) take_joined(line, now);
    for (const Json& line : new_lines(kEndedKey)) take_ended(line, now);
    for (const Json& line : new_lines(kLostKey)) take_lost(line, now);
    tell_of_lost_host(now);
    const Decision before = decision_;
    decision_ = membership_.decide(now);
    if (decision_ == before) return;
    if (decision_.round > before.round && before.round > 0)
      service_.remove_prefix(round_prefix(options_.run_id, before.round) + "/");
    service_.set(kDecisionKey, write_decision(decision_));
  }

  const Decision& decision() const override { return decision_; }
  void report_end(std::int64_t round, const HostResult& result) override {
    service_.append(kEndedKey, ended_line(id(), round, result));
  }
  void post_failure(std::int64_t round, const RankFailure& failure) override {
    const std::string prefix = round_prefix(options_.run_id, round) + "/";
    if (service_.find(prefix + RunStatus::kFailureKey)) return;
    for (const auto& [key, text] : RunStatus::failure_entries(failure))
      service_.set(prefix + key, text);
  }
  std::int64_t store_port() const override { return service_.port(); }
  std::string store_address() const override { return service_.address(); }
  std::string own_address() const override {
    const std::string bound = service_.address();
    return is_loopback(bound.c_str()) ? service_.address_for_others() : bound;
  }
  std::string waiting_text() const override { return membership_.waiting_text(); }

 private:
  using Time = Membership::Time;

  /// Returns the events of a log that have not been returned before. Lines that are none are left
  /// out: whoever knows the token may write.
  std::vector<Json> new_lines(const std::string& key) {
    const std::string text = service_.find(key).value_or("");
    std::size_t& done = read_[key];
    std::vector<Json> lines;
    for (std::size_t end; (end = text.find('\n', done)) != std::string::npos; done = end + 1) {
      Json line = Json::parse(text.substr(done, end - done), nullptr, /*allow_exceptions=*/false);
      if (line.is_object() && line.contains("id") && line["id"].is_string())
        lines.push_back(std::move(line));
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

  void take_joined(const Json& line, Time now) {
    const std::int64_t node_rank = number(line, "node_rank");
    const std::string id = text(line, "id");
    const std::string refusal =
        membership_.join({.id = id,
                          .host = text(line, "host"),
                          .node_rank = node_rank < 0 ? std::nullopt : std::optional(node_rank),
                          .num_ranks = number(line, "num_ranks")},
                         now);
    if (!refusal.empty()) service_.set(refused_key(id), refusal);
  }
  void take_ended(const Json& line, Time now) {
    membership_.end(text(line, "id"), number(line, "round"),
                    {.code = static_cast<int>(number(line, "code")),
                     .description = text(line, "description"),
                     .is_consequence = number(line, "is_consequence") != 0,
                     .was_signalled = number(line, "was_signalled") != 0},
                    now);
  }
  void take_lost(const Json& line, Time now) {
    const std::string id = text(line, "id");
    membership_.lose(id, now);
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

  /// Ends the ranks of the round after a host was lost. Usually they know before.
  void tell_of_lost_host(Time now) {
    if (!lost_host_ || now - lost_host_->since < kLostHostDelay) return;
    if (lost_host_->round == decision_.round) post_failure(lost_host_->round, lost_host_->failure);
    lost_host_.reset();
  }

  struct LostHost {
    std::int64_t round;
    Time since;
    RankFailure failure;
  };
  const AgentOptions options_;
  StoreService service_;
  Membership membership_;
  Decision decision_;
  std::map<std::string, std::size_t> read_;  ///< bytes of each log
  std::optional<LostHost> lost_host_;
};

/// Speaks with the leader, for itself and for the ranks of its host.
class MemberAgent final : public Agent {
 public:
  MemberAgent(const AgentOptions& options, StoreClient& upstream)
      : Agent(make_id()),
        options_(options),
        relay_(ListeningSocket({.port = 0, .loopback_only = true}), options.token, upstream) {
    relay_.watch(kDecisionKey);
    relay_.watch(refused_key(id()));
    relay_.set_last_will(kLostKey, line_of({{"id", id()}, {"host", host_name()}}));
    relay_.append(kJoinedKey, joined_line(id(), options));
  }

  int descriptor() const override { return relay_.descriptor(); }

  void serve() override {
    relay_.serve();
    if (const auto refusal = relay_.value(refused_key(id())))
      throw UserError({"this launcher", *refusal,
                       "start one launcher on each host, with a --node-rank of its own and the "
                       "same --nproc-per-node"});
    if (const auto text = relay_.value(kDecisionKey); text && *text != text_) {
      const std::int64_t before = decision_.round;
      decision_ = read_decision(*text);
      text_ = *text;
      if (decision_.round > before && before > 0)
        relay_.forget_prefix(round_prefix(options_.run_id, before) + "/");
    }
    if (!relay_.lost_reason().empty() && decision_.kind != Decision::Kind::end)
      throw UserError({"the launcher of the first host, at " + options_.master_addr + ":" +
                           std::to_string(options_.master_port),
                       "is lost: " + relay_.lost_reason(),
                       "look at that host, and start the launchers again"});
  }

  const Decision& decision() const override { return decision_; }
  void report_end(std::int64_t round, const HostResult& result) override {
    relay_.append(kEndedKey, ended_line(id(), round, result));
  }
  void post_failure(std::int64_t round, const RankFailure& failure) override {
    const std::string prefix = round_prefix(options_.run_id, round) + "/";
    for (const auto& [key, text] : RunStatus::failure_entries(failure))
      relay_.compare_set(prefix + key, "", text);
  }
  std::int64_t store_port() const override { return relay_.port(); }
  std::string store_address() const override { return "127.0.0.1"; }
  std::string own_address() const override { return relay_.own_address(); }

 private:
  const AgentOptions options_;
  StoreRelay relay_;
  Decision decision_;
  std::string text_;  ///< of the decision
};

std::unique_ptr<Agent> lead(const AgentOptions& options) {
  const bool is_one_host =
      options.membership.max_hosts == 1 && options.master_addr.starts_with("127.");
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

std::string round_prefix(const std::string& run_id, std::int64_t round) {
  return "/megatron/" + run_id + "/" + std::to_string(round - 1);
}

std::unique_ptr<Agent> Agent::join(const AgentOptions& options) {
  if (options.node_rank) return *options.node_rank == 0 ? lead(options) : follow(options);
  if (!is_address_of_this_host(options.master_addr)) return follow(options);
  try {
    return lead(options);
  } catch (const UserError&) {
    return follow(options);  // another launcher of this host has the port
  }
}

}  // namespace megatron
