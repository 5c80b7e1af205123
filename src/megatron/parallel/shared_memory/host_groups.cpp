#include "megatron/parallel/shared_memory/host_groups.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string no_failure() { return {}; }

std::vector<std::int64_t> all_ranks(std::int64_t world_size) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// Returns this rank's host identity. Ranks with equal identities try to share memory.
std::string host_identity_key(const ProcessOptions& options) {
  if (options.cpu_transport == CpuTransport::gloo) return "rank " + std::to_string(options.rank);
  return options.host.empty() ? boot_identity() : options.host;
}

/// Opens the block that the first rank of the host offers. Returns null when it is unreachable.
/// Collective over the ranks of the host.
std::shared_ptr<SharedMemory> open_host_status(const BootstrapStore& bootstrap,
                                               const ProcessOptions& options, std::int64_t first,
                                               bool alone) {
  const std::size_t bytes = HostStatus::bytes(options.world_size);
  if (alone) return SharedMemory::for_threads(bytes);
  if (options.rank == first) {
    std::shared_ptr<SharedMemory> block = SharedMemory::for_processes(bytes);
    bootstrap.set("host_status/" + std::to_string(first), block->handle());
    return block;
  }
  return SharedMemory::open(
      bootstrap
          .wait_for("host_status", {first}, "opening the shared memory of this host", no_failure)
          .front(),
      bytes);
}

}  // namespace

HostGroups find_host_groups(const BootstrapStore& bootstrap, const ProcessOptions& options) {
  const std::vector<std::int64_t> world = all_ranks(options.world_size);
  const std::string own = std::to_string(options.rank), what = "finding the ranks of this host";
  bootstrap.set("host/" + own, host_identity_key(options));
  const std::vector<std::string> hosts = bootstrap.wait_for("host", world, what, no_failure);
  const std::string& host = hosts[static_cast<std::size_t>(options.rank)];
  const std::int64_t first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
  const bool alone = std::count(hosts.begin(), hosts.end(), host) == 1;

  std::shared_ptr<SharedMemory> block = open_host_status(bootstrap, options, first, alone);
  if (!block && options.cpu_transport == CpuTransport::shared_memory) {
    throw UserError({.what = "--cpu-transport shared-memory: rank " + own +
                             " cannot reach the memory of rank " + std::to_string(first) +
                             " on the same host",
                     .got = "/proc does not lead to it (another container or user?)",
                     .fix = "start both in one container (or with a shared process namespace), or "
                            "use --cpu-transport auto"});
  }
  bootstrap.set("place/" + own, std::to_string(block ? first : options.rank));
  if (!block) block = SharedMemory::for_threads(HostStatus::bytes(options.world_size));

  HostGroups host_groups{.host_status =
                             std::make_shared<HostStatus>(std::move(block), options.world_size)};
  host_groups.host_status->enter(options.rank);
  for (const std::string& text : bootstrap.wait_for("place", world, what, no_failure))
    host_groups.host_leader.push_back(std::stoll(text));
  return host_groups;
}

}  // namespace megatron
