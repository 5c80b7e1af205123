#include "megatron/parallel/rendezvous/run_connection.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/base/format.h"
#include "megatron/parallel/rendezvous/connect_to_store.h"

namespace megatron {
namespace {

using std::chrono::milliseconds;

constexpr const char* kRestartKey = "megatron/restart";

std::string prefix_of(const LaunchEnvironment& environment, std::int64_t restart_count) {
  return "megatron/" + environment.run_id + "/" + std::to_string(restart_count);
}

/// Returns the socket that `megatron launch` has opened, or opens one.
ListeningSocket listening_socket(const LaunchEnvironment& environment) {
  if (environment.listening_socket &&
      listening_port(*environment.listening_socket) == environment.master_port) {
    const int own = ::fcntl(*environment.listening_socket, F_DUPFD_CLOEXEC, 0);
    MEGATRON_CHECK(own >= 0,
                   "a descriptor for the socket of the run's store: ", std::strerror(errno));
    return ListeningSocket::adopt(own);
  }
  const bool is_one_host =
      environment.num_nodes == 1 && environment.master_addr.starts_with("127.");
  return ListeningSocket({.port = environment.master_port,
                          .loopback_only = is_one_host,
                          .address_of = environment.master_addr});
}

bool is_late_name(const LaunchEnvironment& environment) {
  return environment.source.starts_with("Kubernetes") || environment.source == "PyTorchJob";
}

RunStore open_root(const LaunchEnvironment& environment, const ConnectionOptions& options) {
  if (hosts_store(environment))
    return RunStore::host(listening_socket(environment), options.timeout, environment.job_token);
  const StoreAddress address{environment.master_addr, environment.master_port,
                             environment.agent_store ? "the launcher's agent" : "rank 0"};
  return RunStore(connect_to_store(
      address, {.timeout = options.timeout,
                .name_timeout = milliseconds(
                    is_late_name(environment) ? 120'000 : 5'000),  // the pod registers its name
                .token = environment.job_token,
                .has_tokens = !environment.agent_store,
                .progress = [&](double waited_s, const std::string& reason) {
                  if (environment.local_rank == 0 && options.progress)
                    options.progress("waiting for " + address.owner + " at " + address.text() +
                                     format(" (%.0f s): ", waited_s) + reason);
                }}));
}

/// Several launchers restart the ranks of their hosts independently, so the highest restart count
/// is the run's. A rank with a lower count throws InternalError and is restarted.
void agree_on_restart(RunStore& root, const LaunchEnvironment& environment) {
  if (environment.source != "megatron launch" || environment.num_nodes == 1) return;
  const std::int64_t own = environment.restart_count;
  for (std::string seen;;) {
    const std::string now = root.compare_set(kRestartKey, seen, std::to_string(own));
    if (now == std::to_string(own)) return;
    const std::int64_t count = std::stoll(now);
    if (count > own)
      throw InternalError("the ranks of another host were started again (restart " + now +
                          "): leaving to be started again too");
    if (now != seen) {
      seen = now;
      RunStatus(root.with_prefix(prefix_of(environment, count)), environment.world_size)
          .post({environment.rank, "", 1,
                 "error: the ranks of host " + std::to_string(environment.node_rank) +
                     " were started again"});
    }
  }
}

}  // namespace

bool hosts_store(const LaunchEnvironment& environment) {
  return environment.rank == 0 && !environment.agent_store;
}

RunStore open_store(const LaunchEnvironment& environment, const ConnectionOptions& options) {
  RunStore root = open_root(environment, options);
  agree_on_restart(root, environment);
  return root.with_prefix(prefix_of(environment, environment.restart_count));
}

}  // namespace megatron
