#include "megatron/parallel/shared_memory/host_groups.h"

#include <algorithm>
#include <map>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/machine.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/rendezvous/wait_for_ranks.h"

namespace megatron {
namespace {

/// Returns this rank's host identity. Ranks with equal identities try to share memory.
std::string host_identity_key(const ProcessOptions& options) {
  if (options.cpu_transport == CpuTransport::gloo) return "rank " + std::to_string(options.rank);
  return options.host.empty() ? boot_id() : options.host;
}

/// Returns for each text the index of the first equal one.
std::vector<std::int64_t> first_equal(const std::vector<std::string>& texts) {
  std::map<std::string, std::int64_t> first;
  std::vector<std::int64_t> indices;
  for (const std::string& text : texts)
    indices.push_back(
        first.try_emplace(text, static_cast<std::int64_t>(indices.size())).first->second);
  return indices;
}

std::vector<std::int64_t> numbers_of(const std::vector<std::string>& texts) {
  std::vector<std::int64_t> numbers;
  for (const std::string& text : texts) numbers.push_back(std::stoll(text));
  return numbers;
}

/// Writes numbers as pairs "<number> <how often in a row>", which is short even for thousands of
/// ranks; read_runs() is the inverse.
std::string write_runs(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0, next; i < numbers.size(); i = next) {
    for (next = i + 1; next < numbers.size() && numbers[next] == numbers[i];) ++next;
    text += std::to_string(numbers[i]) + " " + std::to_string(next - i) + " ";
  }
  return text;
}

std::vector<std::int64_t> read_runs(const std::string& text) {
  std::istringstream words(text);
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0, count = 0; words >> number >> count;)
    numbers.insert(numbers.end(), static_cast<std::size_t>(count), number);
  return numbers;
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

HostGroups find_host_groups(const RunStore& store, const ProcessOptions& options) {
  const std::vector<std::int64_t> world = all_ranks(options.world_size);
  const std::string own = std::to_string(options.rank);
  const StoreWait wait{.what = "finding the ranks of this host", .timeout = options.timeout};
  const std::vector<std::int64_t> leaders = read_runs(agree_over_store(
      store, "host", options.rank, host_identity_key(options), world,
      [](const std::vector<std::string>& hosts) { return write_runs(first_equal(hosts)); }, wait));
  const std::int64_t first = leaders.at(static_cast<std::size_t>(options.rank));
  const bool alone = std::ranges::count(leaders, first) == 1;

  std::shared_ptr<SharedMemory> block = open_host_status(store, options, first, alone);
  if (!block && options.cpu_transport == CpuTransport::shared_memory) {
    throw UserError({.what = "--cpu-transport shared-memory: rank " + own +
                             " cannot reach the memory of rank " + std::to_string(first) +
                             " on the same host",
                     .got = "/proc does not lead to it (another container or user?)",
                     .fix = "start both in one container (or with a shared process namespace), or "
                            "use --cpu-transport auto"});
  }
  const std::string place = std::to_string(block ? first : options.rank);
  if (!block) block = SharedMemory::for_threads(HostStatus::bytes(options.world_size));

  HostGroups host_groups{.host_status =
                             std::make_shared<HostStatus>(std::move(block), options.world_size)};
  host_groups.host_status->enter(options.rank);
  host_groups.host_leader = read_runs(agree_over_store(
      store, "place", options.rank, place, world,
      [](const std::vector<std::string>& places) { return write_runs(numbers_of(places)); }, wait));
  return host_groups;
}

}  // namespace megatron
