// Which hosts take part in a run: the decisions of the agent that hosts the store (the leader).
// Pure: it receives events with their times, and returns what every agent has to do. A round is one
// start of the ranks; its hosts do not change until it ends.
//
// A run of 2 to 4 hosts begins when four agents have joined, or `last_call` after at least two
// have. A failure ends the round. The next one has the agents that are left. An
// agent that joins later makes the ranks save and stop at a step, and the next round includes it.
// So does an agent that leaves, and the next round excludes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace megatron {

/// How the ranks of one host ended.
struct HostResult {
  int code = 0;                 ///< exit code of the first rank that failed
  std::string description;      ///< "rank 3 was killed by signal 9 (SIGKILL)"; empty after success
  bool is_consequence = false;  ///< the failure of a rank on another host ended them
  bool was_signalled = false;   ///< a signal asked the launcher or the ranks to stop
  bool stopped_on_request = false;  ///< the rank saved and stopped, as a signal asked it to
  std::chrono::milliseconds since_failure{0};  ///< from the failure of that rank to this report
};

struct MembershipOptions {
  std::int64_t min_hosts = 1, max_hosts = 1;
  std::int64_t max_restarts = 0;
  std::chrono::milliseconds last_call{15'000};      ///< for more to join, once min_hosts have
  std::chrono::milliseconds join_timeout{600'000};  ///< for min_hosts to join
  std::chrono::milliseconds settle_time{30'000};    ///< of a round before it may grow
  std::chrono::milliseconds self_end_time{20'000};  ///< for ranks to end after another's failure
  std::chrono::milliseconds end_timeout{60'000};    ///< for those that are then made to end
  /// Returns why the run cannot have that many hosts, or "". Null: any number fits.
  std::function<std::string(std::int64_t hosts)> refusal = {};
  /// Whether a stopped run resumes where it stopped: a round may end so that a host can join.
  bool can_grow = false;
};

/// What every agent has to do.
struct Decision {
  enum class Kind : std::uint8_t { wait, run, stop, abort, end };
  Kind kind = Kind::wait;
  std::int64_t round = 0;      ///< counts from 1; the round that the decision is about
  std::int64_t num_hosts = 0;  ///< of the round
  /// Ids of the round's agents, in the order of their hosts. Only the leader knows them, because
  /// every host reads each decision.
  std::vector<std::string> members;
  std::int64_t restarts = 0;  ///< failures so far after which the ranks were started again
  std::string reason;         ///< of this round: why the one before ended; or of the end of the run
  int code = 0;               ///< exit code, with `end`
  bool is_restart = false;    ///< whether a failure ended the round before
  std::string blame;          ///< the hosts whose failures ended rounds: "node2 (2), node1 (1)"
  bool operator==(const Decision&) const = default;
};

/// Writes a decision without its members.
std::string write_decision(const Decision& decision);
/// Throws a UserError if the text is not a decision.
Decision read_decision(const std::string& text);

class Membership {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit Membership(MembershipOptions options) : options_(std::move(options)) {}

  /// An agent is ready to run ranks.
  struct Joining {
    std::string id, host;
    std::optional<std::int64_t> node_rank;  ///< orders the hosts; without, the order of joining
    std::int64_t num_ranks = 1;             ///< of its host, as many as on every other
  };
  /// Returns why the agent cannot take part, or "".
  std::string join(const Joining& joining, Time now);
  /// The ranks of an agent have ended in this round. An agent that was declared lost has rejoined.
  void end(const std::string& id, std::int64_t round, const HostResult& result, Time now);
  /// The agent's host is being preempted; the run continues without it.
  void leave(const std::string& id);
  /// The connection to an agent is lost: its host is down, or the network to it is cut. Returns
  /// whether the ranks of a round ran there.
  bool lose(const std::string& id, Time now);
  /// Returns the name of an agent's host, or "".
  std::string host_of(const std::string& id) const;
  /// Returns the agent that runs as this host, or "". Another can take its place once it is lost.
  std::string agent_of(std::int64_t node_rank) const;

  /// Ends the run with this exit code, unless it has ended.
  void finish(int code, const std::string& reason);

  /// Returns what to do now. Must be called after every change, and at least once a second.
  const Decision& decide(Time now);

  /// Returns the members of a round that has failed which have not ended yet.
  std::vector<std::string> awaited_members() const;
  /// Returns the hosts that are awaited, for a progress line: "1 of 2 to 4 hosts are available".
  std::string waiting_text() const;

 private:
  struct Agent {
    std::string id, host;
    std::optional<std::int64_t> node_rank;
    std::int64_t order = 0, num_ranks = 1;
    Time available_since{};
    bool is_lost = false, is_leaving = false;
    bool is_member = false;            ///< of the current round
    std::optional<HostResult> result;  ///< of the current round
    Time failed_at{};                  ///< when its first rank failed
  };
  /// Whether an agent can run ranks in a later round.
  static bool is_available(const Agent& agent) { return !agent.is_lost && !agent.is_leaving; }
  Agent* find(const std::string& id);
  std::vector<const Agent*> candidates() const;
  bool new_hosts_have_settled(Time now) const;
  void request_stop(const std::string& reason);
  /// Whether the hosts that are left suffice for a round.
  bool can_continue() const {
    return largest_fit(static_cast<std::int64_t>(candidates().size())) > 0;
  }
  const std::string& refusal(std::int64_t hosts) const;
  std::int64_t largest_fit(std::int64_t hosts) const;
  void form(Time now);
  void begin_round(const std::vector<const Agent*>& hosts, Time now);
  void watch_round(Time now);
  void end_round(Time now);
  const Agent& cause_of_end();
  std::string blame() const;
  /// Ends the run if hosts have been awaited too long.
  void end_if_overdue(Time now, const std::string& reason);
  /// Returns whether a run that ends with this exit code is not started again.
  static bool is_final(int code);
  std::chrono::milliseconds backoff() const;

  const MembershipOptions options_;
  std::vector<Agent> agents_;                             ///< in the order of joining
  std::unordered_map<std::string, std::size_t> numbers_;  ///< of the agents, by id
  std::map<std::string, std::int64_t> failures_;          ///< by host
  Decision decision_;
  mutable std::map<std::int64_t, std::string> refusals_;  ///< by number of hosts
  bool is_running_ = false;
  bool stop_requested_ = false;  ///< of the hosts of this round, so that others can join or leave
  bool host_leaves_ = false;     ///< a host leaves after this round
  std::optional<Time> forming_since_, enough_since_, ending_since_, begin_not_before_;
  Time round_start_{};
  int last_code_ = 1;                ///< of the last failure, or of a loss of hosts
  std::int64_t quick_failures_ = 0;  ///< in a row, each soon after its round began
};

}  // namespace megatron
