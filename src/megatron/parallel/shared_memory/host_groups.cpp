#include "megatron/parallel/shared_memory/host_groups.h"

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/parallel/rendezvous/wait_for_ranks.h"

namespace megatron {
namespace {

std::vector<std::int64_t> all_ranks(std::int64_t world_size) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// Returns this rank's host identity. Ranks with equal identities try to share memory.
std::string host_identity_key(const ProcessOptions& options) {
  if (options.cpu_transport == CpuTransport::gloo) return "rank " + std::to_string(options.rank);
  return options.host.empty() ? boot_id() : options.host;
}

/// Opens the block that the first rank of the host offers. Returns null when it is unreachable.
/// Collective over the ranks of the host.
std::shared_ptr<SharedMemory> open_host_status(RunStore store, const ProcessOptions& options,
                                               std::int64_t first, bool alone) {
  const std::size_t bytes = HostStatus::bytes(options.world_size);
  if (alone) return SharedMemory::for_threads(bytes);
  if (options.rank == first) {
    std::shared_ptr<SharedMemory> block = SharedMemory::for_processes(bytes);
    store.set("host_status/" + std::to_string(first), block->handle());
    return block;
  }
  const StoreWait wait{.what = "opening the shared memory of this host",
                       .timeout = options.timeout};
  return SharedMemory::open(wait_for_ranks(store, "host_status", {first}, wait).front(), bytes);
}

}  // namespace

HostGroups find_host_groups(RunStore store, const ProcessOptions& options) {
  const std::vector<std::int64_t> world = all_ranks(options.world_size);
  const std::string own = std::to_string(options.rank);
  const StoreWait wait{.what = "finding the ranks of this host", .timeout = options.timeout};
  store.set("host/" + own, host_identity_key(options));
  const std::vector<std::string> hosts = wait_for_ranks(store, "host", world, wait);
  const std::string& host = hosts[static_cast<std::size_t>(options.rank)];
  const std::int64_t first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
  const bool alone = std::count(hosts.begin(), hosts.end(), host) == 1;

  std::shared_ptr<SharedMemory> block = open_host_status(store, options, first, alone);
  if (!block && options.cpu_transport == CpuTransport::shared_memory) {
    throw UserError({.what = "--cpu-transport shared-memory: rank " + own +
                             " cannot reach the memory of rank " + std::to_string(first) +
                             " on the same host",
                     .got = "/proc does not lead to it (another container or user?)",
                     .fix = "start both in one container (or with a shared process namespace), or "
                            "use --cpu-transport auto"});
  }
  store.set("place/" + own, std::to_string(block ? first : options.rank));
  if (!block) block = SharedMemory::for_threads(HostStatus::bytes(options.world_size));

  HostGroups host_groups{.host_status =
                             std::make_shared<HostStatus>(std::move(block), options.world_size)};
  host_groups.host_status->enter(options.rank);
  for (const std::string& text : wait_for_ranks(store, "place", world, wait))
    host_groups.host_leader.push_back(std::stoll(text));
  return host_groups;
}

}  // namespace megatron
