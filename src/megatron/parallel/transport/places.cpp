#include "megatron/parallel/transport/places.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string no_trouble() { return {}; }

std::vector<std::int64_t> all_ranks(std::int64_t world_size) {
  std::vector<std::int64_t> ranks;
  for (std::int64_t rank = 0; rank < world_size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// What this rank says of itself: ranks with equal words try to share memory.
std::string host_word(const ProcessOptions& options) {
  if (options.cpu_transport == CpuTransport::gloo) return "rank " + std::to_string(options.rank);
  return options.host.empty() ? boot_identity() : options.host;
}

/// The block that the first rank of the host offers; null when it is out of reach. Collective over the ranks of the host.
std::shared_ptr<SharedBlock> shared_board(const StoreTalk& talk, const ProcessOptions& options, std::int64_t first, bool alone) {
  const std::size_t bytes = RankBoard::bytes(options.world_size);
  if (alone) return SharedBlock::of_threads(bytes);
  if (options.rank == first) {
    std::shared_ptr<SharedBlock> block = SharedBlock::of_processes(bytes);
    talk.set("board/" + std::to_string(first), block->ticket());
    return block;
  }
  return SharedBlock::open(talk.await("board", {first}, "meeting the ranks of this host", no_trouble).front(), bytes);
}

}  // namespace

Places find_places(const StoreTalk& talk, const ProcessOptions& options) {
  const std::vector<std::int64_t> world = all_ranks(options.world_size);
  const std::string own = std::to_string(options.rank), what = "meeting the other ranks";
  talk.set("host/" + own, host_word(options));
  const std::vector<std::string> hosts = talk.await("host", world, what, no_trouble);
  const std::string& host = hosts[static_cast<std::size_t>(options.rank)];
  const std::int64_t first = std::find(hosts.begin(), hosts.end(), host) - hosts.begin();
  const bool alone = std::count(hosts.begin(), hosts.end(), host) == 1;

  std::shared_ptr<SharedBlock> block = shared_board(talk, options, first, alone);
  if (!block && options.cpu_transport == CpuTransport::shared_memory) {
    throw UserError(
        {.what = "--cpu-transport shared-memory: rank " + own + " cannot reach the memory of rank " + std::to_string(first) + " on the same host",
         .got = "/proc does not lead to it (another container or user?)",
         .fix = "start both in one container (or with a shared process namespace), or use --cpu-transport auto"});
  }
  talk.set("place/" + own, std::to_string(block ? first : options.rank));
  if (!block) block = SharedBlock::of_threads(RankBoard::bytes(options.world_size));

  Places places{.board = std::make_shared<RankBoard>(std::move(block), options.world_size)};
  places.board->enter(options.rank);
  for (const std::string& text : talk.await("place", world, what, no_trouble)) places.first_of.push_back(std::stoll(text));
  return places;
}

}  // namespace megatron
