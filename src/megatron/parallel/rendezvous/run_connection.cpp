#include "megatron/parallel/rendezvous/run_connection.h"

#include <unistd.h>

#include "megatron/base/endpoint.h"
#include "megatron/base/format.h"
#include "megatron/base/machine.h"
#include "megatron/control/connect_to_store.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

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

}  // namespace megatron
