#include "megatron/parallel/process_communicators.h"

#include <algorithm>
#include <map>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/parallel/transport/exchange_transport.h"
#include "megatron/parallel/transport/lane_comm.h"
#include "megatron/parallel/transport/places.h"

namespace megatron {
namespace {

using Ranks = std::vector<std::int64_t>;

/// The place of a list of ranks in the store.
std::string key_of(const Ranks& ranks) {
  std::string text;
  for (const std::int64_t rank : ranks) text += std::to_string(rank) + ",";
  return "group/" + std::to_string(ranks.size()) + "-" + checksum_text(checksum(text));
}

class ProcessCommunicators final : public Communicators {
 public:
  ProcessCommunicators(StoreTalk talk, const ProcessOptions& options)
      : talk_(std::move(talk)), options_(options), places_(find_places(talk_, options)) {}
  ~ProcessCommunicators() override {
    groups_.clear();
    places_.board->leave(options_.rank);
  }
  std::int64_t rank() const override { return options_.rank; }
  std::int64_t world_size() const override { return options_.world_size; }
  CommCounters& counters() override { return *counters_; }
  void abort(const std::string& reason) override { places_.board->fail(reason); }
  std::shared_ptr<Comm> group(const Ranks& ranks, const std::string& name) override;

 private:
  std::shared_ptr<Transport> transport_of(const GroupPlace& place);
  std::shared_ptr<Transport> shared_memory(const GroupPlace& place);

  StoreTalk talk_;
  ProcessOptions options_;
  Places places_;
  std::shared_ptr<CommCounters> counters_ = std::make_shared<CommCounters>();
  std::map<Ranks, std::shared_ptr<Comm>> groups_;
};

std::shared_ptr<Comm> ProcessCommunicators::group(const Ranks& ranks, const std::string& name) {
  const auto own = std::lower_bound(ranks.begin(), ranks.end(), options_.rank);
  MEGATRON_CHECK(own != ranks.end() && *own == options_.rank, "rank ", options_.rank, " asks for the group '", name, "' of other ranks");
  if (ranks.size() == 1) return nullptr;
  std::shared_ptr<Comm>& comm = groups_[ranks];
  if (!comm) {
    GroupPlace place{name, ranks, own - ranks.begin()};
    comm = std::make_shared<LaneComm>(place, transport_of(place), counters_);
  }
  return comm;
}

std::shared_ptr<Transport> ProcessCommunicators::transport_of(const GroupPlace& place) { return shared_memory(place); }

/// The first rank makes the memory, the others open it.
std::shared_ptr<Transport> ProcessCommunicators::shared_memory(const GroupPlace& place) {
  const std::size_t bytes = ExchangeArea::bytes(place.size());
  const std::int64_t first = place.ranks.front();
  const std::string key = key_of(place.ranks), what = "making the group " + place.name;
  std::shared_ptr<SharedBlock> block;
  if (place.rank == 0) {
    block = SharedBlock::of_processes(bytes);
    talk_.set(key + "/" + std::to_string(first), block->ticket());
  } else {
    const auto trouble = [&] { return places_.board->is_dead(first) ? name_ranks({first}) + " died" : places_.board->failure(); };
    block = SharedBlock::open(talk_.await(key, {first}, what, trouble).front(), bytes);
    if (!block) throw CommError(what + ": " + name_ranks({first}) + " has taken its memory away");
  }
  return std::make_shared<ExchangeTransport>(ExchangeArea(std::move(block), place.size()), place, places_.board, options_.timeout);
}

}  // namespace

std::unique_ptr<Communicators> make_process_communicators(const c10::intrusive_ptr<c10d::Store>& store, const ProcessOptions& options) {
  const std::int64_t joined = StoreTalk(store, "communicators/", options.timeout).add("joined", 1);
  const std::string generation = std::to_string((joined - 1) / options.world_size);
  return std::make_unique<ProcessCommunicators>(StoreTalk(store, "communicators/" + generation + "/", options.timeout), options);
}

}  // namespace megatron
