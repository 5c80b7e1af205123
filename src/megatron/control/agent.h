// The control plane of a run as a host sees it. Every launcher is the agent of its host. The agent
// of the first host (the leader) hosts the run's store and decides; the others speak with it over
// one connection and relay the requests of their ranks. A rank speaks with the agent of its host
// only, so that the death of a rank, rank 0 included, does not cut off any other.
//
// An agent has no thread: its owner polls descriptor() and calls serve().
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "megatron/control/membership.h"
#include "megatron/control/run_status.h"

namespace megatron {

struct AgentOptions {
  std::string master_addr = "127.0.0.1";  ///< name or address of the first host
  std::int64_t master_port = 0;           ///< 0: any free port, on one host
  std::string token;                      ///< secret of the run; empty: none is required
  std::string run_name;                   ///< launchers of a run with another name are refused
  std::optional<std::int64_t> node_rank;  ///< 0: the leader; without: whoever is at master_addr
  std::int64_t num_ranks = 1;             ///< on this host
  MembershipOptions membership;           ///< used by the leader
  /// Receives lines such as "waiting for the launcher of host 0 at node1:29500 (10 s): …".
  std::function<void(const std::string& line)> progress;
  /// Whether to give up waiting for the leader, because a signal ends the launcher.
  std::function<bool()> is_cancelled;
};

class Agent {
 public:
  /// Joins the run. Blocks until the leader answers. Throws a UserError that names the address if
  /// the port is taken or the leader does not answer within the join timeout.
  static std::unique_ptr<Agent> join(const AgentOptions& options);
  virtual ~Agent() = default;

  virtual int descriptor() const = 0;
  /// Handles what has arrived, without blocking. Throws a UserError if the leader refuses this
  /// host.
  virtual void serve() = 0;
  /// Returns what this host has to do, as of the last serve().
  virtual const Decision& decision() const = 0;
  /// Returns the place of this host among those of the decision's round; nothing if it takes no
  /// part in that.
  virtual std::optional<std::int64_t> place() const = 0;
  /// Returns why the leader is lost or seems to be: "has not answered for 20 s"; or "". The
  /// connections of the ranks to their store end with that to the leader.
  virtual std::string lost_reason() const { return ""; }
  const std::string& id() const { return id_; }
  /// Returns whether serve() must be called at least once a second.
  virtual bool needs_ticks() const { return false; }

  /// Ends the run between two rounds with this exit code of every launcher. Returns false if this
  /// is not the leader.
  virtual bool end_run(int /*code*/, const std::string& /*reason*/) { return false; }
  /// Asks the leader to let the ranks save and stop, and to continue without this host. Returns
  /// false where the run cannot: it is not elastic, saves nothing, or this is the leader.
  virtual bool leave() { return false; }
  /// Reports how the ranks of this host ended. Every round needs it once.
  virtual void report_end(std::int64_t round, const HostResult& result) = 0;
  /// Makes every rank of the round end, unless a failure is known to them.
  virtual void post_failure(std::int64_t round, const RankFailure& failure) = 0;

  /// Returns the port and the address at which the ranks of this host reach the store.
  virtual std::int64_t store_port() const = 0;
  virtual std::string store_address() const = 0;
  /// Returns the numeric address of this host for others; "" if it is the only one.
  virtual std::string own_address() const = 0;
  /// Returns the hosts that the run waits for; "" if this agent does not know.
  virtual std::string waiting_text() const { return ""; }
  /// Serves the other agents until all have read the decision that ends the run and have left, for
  /// at most `limit`. The leader must call it before it exits.
  virtual void drain_followers(std::chrono::milliseconds /*limit*/) {}

 protected:
  explicit Agent(std::string id) : id_(std::move(id)) {}

 private:
  std::string id_;
};

/// Returns what the keys of a round's ranks begin with: their launcher gives the run no name
/// (parallel/rendezvous/rendezvous.cpp).
std::string round_prefix(std::int64_t round);

}  // namespace megatron
