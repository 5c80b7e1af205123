#include "megatron/parallel/rendezvous/rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/endpoint.h"
#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/base/json.h"
#include "megatron/base/machine.h"
#include "megatron/base/wall_clock.h"
#include "megatron/control/connect_to_store.h"
#include "megatron/parallel/comm.h"
#include "megatron/parallel/rank_list.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kRank0Margin{10'000};  ///< Rank 0 times out this much earlier than others.

std::string record_key(std::int64_t rank) { return "rank/" + std::to_string(rank); }
std::string settings_key(std::int64_t rank) { return "settings/" + std::to_string(rank); }

milliseconds remaining(Clock::time_point until) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(until - Clock::now()));
}

RankRecord record_of(const LaunchEnvironment& environment, const RunStore& store,
                     const RendezvousOptions& options) {
  RankRecord record =
      own_record(options.settings,
                 environment.own_addr.empty() ? store.local_address() : environment.own_addr);
  if (!options.host.empty()) record.host = record.host_id = options.host;
  return record;
}

class Rendezvous {
 public:
  Rendezvous(const LaunchEnvironment& environment, RunStore& store, RunStatus& run_status,
             const RendezvousOptions& options)
      : environment_(environment),
        store_(store),
        run_status_(run_status),
        options_(options),
        own_(record_of(environment, store, options)) {}

  RunHosts run() {
    publish_record();
    if (environment_.rank == 0) {
      wait_for_all();
      return publish_hosts();
    }
    return receive_hosts();
  }

 private:
  void publish_record() {
    const std::string text = write_record(own_);
    const std::string existing = store_.compare_set(record_key(environment_.rank), "", text);
    if (existing != text) {
      const RankRecord other = read_record(existing);
      throw UserError({"rank " + std::to_string(environment_.rank) + " was started twice",
                       "on " + other.host + " (pid " + std::to_string(other.pid) + ") and on " +
                           own_.host + " (pid " + std::to_string(own_.pid) + ")",
                       "give every process its own RANK (--node-rank of each host), and every run "
                       "a port of its own"});
    }
    if (store_.add("arrived", 1) == environment_.world_size)
      store_.set(RunStatus::kAllArrivedKey, "yes");
  }

  /// On rank 0: waits until all ranks have arrived, and reports which are missing.
  void wait_for_all() {
    const auto start = Clock::now();
    const milliseconds interval = options_.progress_interval;
    for (milliseconds next_report = std::min(interval, options_.timeout);
         !store_.poll(RunStatus::kAllArrivedKey, remaining(start + next_report));) {
      const double waited_s = std::chrono::duration<double>(Clock::now() - start).count();
      if (next_report == options_.timeout) fail(missing_error(waited_s));
      options_.progress("waiting for " + missing_text() + format(" (%.0f s)", waited_s));
      next_report = std::min(next_report + (next_report < 10 * interval ? interval : 10 * interval),
                             options_.timeout);
    }
    throw_if_stopped(RunStatus::kAllArrivedKey);
  }

  std::string missing_text() {
    std::vector<std::int64_t> missing;
    for (std::int64_t rank = 0; rank < environment_.world_size; ++rank) {
      if (!store_.find(record_key(rank))) missing.push_back(rank);
    }
    return ranks_text(missing) + " of " + std::to_string(environment_.world_size);
  }

  /// A launcher has started all ranks, so one that is missing is no mistake of the user, and the
  /// launcher may start them again.
  [[noreturn]] void fail(const UserError& error) const {
    if (environment_.launcher_port != 0) throw CommError(error.what());
    throw error;
  }

  UserError missing_error(double waited_s) {
    return UserError({"the ranks of this run",
                      missing_text() + format(" did not arrive within %.0f s", waited_s),
                      "start them, or check why they ended; they must reach " +
                          Endpoint{environment_.master_addr, environment_.master_port}.text() +
                          " (--distributed-timeout-minutes sets how long to wait)"});
  }

  void throw_if_stopped(const char* key) {
    if (store_.find(key) != RunStatus::kStoppedValue) return;
    if (const auto failure = run_status_.first()) throw PeerFailed(*failure);
  }

  /// On rank 0: compares the settings and publishes the hosts of all ranks.
  RunHosts publish_hosts() {
    std::vector<std::string> keys;
    for (std::int64_t rank = 0; rank < environment_.world_size; ++rank)
      keys.push_back(record_key(rank));
    std::vector<RankRecord> records;
    for (const std::string& text : store_.get_all(keys)) records.push_back(read_record(text));
    std::vector<std::int64_t> others;
    for (std::int64_t rank = 1; rank < environment_.world_size; ++rank) {
      if (records[static_cast<std::size_t>(rank)].settings_hash != own_.settings_hash)
        others.push_back(rank);
    }
    if (!others.empty()) throw settings_error(others);
    const Json hosts = write_hosts(
        records, own_.host + "-" + std::to_string(own_.pid) + "-" + format("%.0f", unix_seconds()));
    store_.set(RunStatus::kHostsKey, compact_json(hosts));
    return read_hosts(hosts, own_, 0, environment_.world_size);
  }

  UserError settings_error(const std::vector<std::int64_t>& ranks) {
    store_.set(RunStatus::kHostsKey, Json{{"tell_settings", ranks[0]}}.dump());
    std::string difference = "with other settings than rank 0";
    if (store_.poll(settings_key(ranks[0]), milliseconds(10'000)))
      difference = first_difference(read_settings(store_.get_all({settings_key(ranks[0])})[0]),
                                    options_.settings);
    const std::string more = ranks.size() > 1 ? ranks_text(ranks) + " differ from rank 0" : "";
    return UserError({"rank " + std::to_string(ranks[0]) + " was started " + difference, more,
                      "start every rank with the same command"});
  }

  UserError rank0_timeout_error() const {
    return UserError(
        {"rank 0 of this run",
         format("has not begun within %.0f s",
                std::chrono::duration<double>(options_.timeout + kRank0Margin).count()),
         "check what it does, or raise --distributed-timeout-minutes"});
  }

  /// On the other ranks: waits for the hosts that rank 0 publishes.
  RunHosts receive_hosts() {
    // Rank 0 times out first and publishes the cause, unless it has ended.
    if (!store_.poll(RunStatus::kHostsKey, options_.timeout + kRank0Margin))
      fail(rank0_timeout_error());
    const std::string text = store_.get_all({RunStatus::kHostsKey})[0];
    throw_if_stopped(RunStatus::kHostsKey);
    const Json json = parse_json(text, "rank 0's answer in the run's store");
    if (!json.contains("tell_settings"))
      return read_hosts(json, own_, environment_.rank, environment_.world_size);
    if (json["tell_settings"] == environment_.rank)
      store_.set(settings_key(environment_.rank), write_settings(options_.settings));
    const auto failure = run_status_.wait_for_failure(options_.timeout);
    MEGATRON_CHECK(failure, "rank 0 refused the settings without a failure");
    throw PeerFailed(*failure);
  }

  const LaunchEnvironment& environment_;
  RunStore& store_;
  RunStatus& run_status_;
  const RendezvousOptions& options_;
  const RankRecord own_;
};

/// Separates the starts of a run. Each agent of torchrun counts only the restarts that it has seen,
/// so its count is left out where rank 0 hosts a new store for every start.
std::string prefix_of(const LaunchEnvironment& environment) {
  const bool is_counted_alike = environment.launcher_port != 0 || environment.agent_store;
  return "megatron/" + environment.run_id + "/" +
         std::to_string(is_counted_alike ? environment.restart_count : 0);
}

ListeningSocket listening_socket(const LaunchEnvironment& environment) {
  const bool is_one_host = environment.num_nodes == 1 && is_loopback(environment.master_addr);
  return ListeningSocket({.port = environment.master_port,
                          .loopback_only = is_one_host,
                          .address_of = environment.master_addr});
}

/// Returns where this rank finds the store.
StoreAddress store_address(const LaunchEnvironment& environment) {
  if (environment.launcher_port != 0) {
    StoreAddress address{environment.launcher_addr, environment.launcher_port, "the launcher"};
    if (environment.node_rank == 0) return address;
    // The launcher of this host relays the requests.
    address.relay = ::getppid();
    address.owner = "the launcher of the first host";
    address.shown = Endpoint{environment.master_addr, environment.master_port}.text();
    return address;
  }
  return {environment.master_addr, environment.master_port,
          environment.agent_store ? "the launcher's agent" : "rank 0"};
}

/// Returns whether this rank reports its wait: one of each host does, the second of the first host
/// where the first is rank 0 and hosts the store.
bool reports_wait(const LaunchEnvironment& environment) {
  const bool waits_for_rank_0 = !environment.agent_store && environment.launcher_port == 0;
  return environment.local_rank == 0 ||
         (waits_for_rank_0 && environment.node_rank == 0 && environment.local_rank == 1);
}

bool is_late_name(const LaunchEnvironment& environment) {
  return environment.source.starts_with("Kubernetes") || environment.source == "PyTorchJob";
}

RunStore open_root(const LaunchEnvironment& environment, const ConnectionOptions& options) {
  if (hosts_store(environment)) {
    raise_open_file_limit();  // every rank makes several connections
    return RunStore::host(listening_socket(environment), options.timeout, environment.job_token);
  }
  const StoreAddress address = store_address(environment);
  RunStore::Connect connect_again;
  if (!environment.agent_store)
    connect_again = [address, token = environment.job_token](milliseconds timeout) {
      return connect_to_store(address, {.timeout = timeout, .token = token});
    };
  return RunStore(
      connect_to_store(
          address, {.timeout = options.timeout,
                    .name_timeout = milliseconds(
                        is_late_name(environment) ? 120'000 : 5'000),  // the pod registers its name
                    .token = environment.job_token,
                    .has_tokens = !environment.agent_store,
                    .progress =
                        [&](double waited_s, const std::string& reason) {
                          if (reports_wait(environment) && options.progress)
                            options.progress("waiting for " + address.owner + " at " +
                                             address.text() + format(" (%.0f s): ", waited_s) +
                                             reason);
                        }}),
      connect_again);
}

}  // namespace

bool hosts_store(const LaunchEnvironment& environment) {
  return environment.rank == 0 && !environment.agent_store && environment.launcher_port == 0;
}

RunStore open_store(const LaunchEnvironment& environment, const ConnectionOptions& options) {
  return open_root(environment, options).with_prefix(prefix_of(environment));
}

RunHosts rendezvous(const LaunchEnvironment& environment, RunStore& store, RunStatus& run_status,
                    const RendezvousOptions& options) {
  return Rendezvous(environment, store, run_status, options).run();
}

}  // namespace megatron
