#include "megatron/parallel/process_communicators.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/transport/exchange_transport.h"
#include "megatron/parallel/transport/failure_watch.h"
#include "megatron/parallel/transport/gloo_channel.h"
#include "megatron/parallel/transport/hierarchical_transport.h"
#include "megatron/parallel/transport/lane_comm.h"
#include "megatron/parallel/transport/message_transport.h"
#include "megatron/parallel/transport/nccl_comm.h"
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

Ranks count_up(std::int64_t size) {
  Ranks ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// The members (ranks in the group) as a group of their own, this rank among them.
GroupPlace subgroup(const GroupPlace& place, const Ranks& members) {
  GroupPlace part{.name = place.name};
  for (const std::int64_t member : members) {
    if (member == place.rank) part.rank = part.size();
    part.ranks.push_back(place.ranks[static_cast<std::size_t>(member)]);
  }
  return part;
}

class ProcessCommunicators final : public Communicators {
 public:
  ProcessCommunicators(StoreTalk talk, const ProcessOptions& options)
      : talk_(std::move(talk)), options_(options), places_(find_places(talk_, options)) {}
  ~ProcessCommunicators() override {
    groups_.clear();
    std::unique_ptr<FailureWatch> watch;
    {
      const std::lock_guard lock(watch_mutex_);
      watch = std::move(watch_);
    }
    watch.reset();
    places_.board->leave(options_.rank);
  }
  std::int64_t rank() const override { return options_.rank; }
  std::int64_t world_size() const override { return options_.world_size; }
  CommCounters& counters() override { return *counters_; }
  void note_iteration(std::int64_t iteration) override { places_.board->waits().note_iteration(options_.rank, iteration); }
  std::shared_ptr<FailureNotice> failure_notice() override { return places_.board; }
  /// In any thread.
  void abort(const std::string& reason) override {
    places_.board->fail(reason);
    const std::lock_guard lock(watch_mutex_);
    if (watch_) watch_->tell();
  }
  std::shared_ptr<Comm> group(const Ranks& ranks, const std::string& name) override;

 private:
  std::shared_ptr<Transport> transport_of(const GroupPlace& place);
  std::shared_ptr<Transport> shared_memory(const GroupPlace& place, const std::string& key);
  std::shared_ptr<ByteChannel> channel_of(const GroupPlace& place);
  /// Messages of the channel of a whole group between those of its ranks that are `members`.
  std::shared_ptr<Transport> messages(std::shared_ptr<ByteChannel> channel, const GroupPlace& place, const Ranks& members);
  std::shared_ptr<Transport> hierarchical(const GroupPlace& place, const std::vector<Ranks>& members);
  std::shared_ptr<Comm> on_gpus(const GroupPlace& place);
  c10::intrusive_ptr<c10d::Backend> nccl(const GroupPlace& place, NcclComm::Traffic traffic);
  void start_watch() {
    if (watch_) return;
    const std::lock_guard lock(watch_mutex_);
    watch_ = std::make_unique<FailureWatch>(talk_, places_.board, FailureWatch::Options{options_.rank, places_.first_of, options_.timeout});
  }
  bool one_place(const Ranks& ranks) const;

  StoreTalk talk_;
  ProcessOptions options_;
  Places places_;
  std::shared_ptr<CommCounters> counters_ = std::make_shared<CommCounters>();
  std::mutex watch_mutex_;               ///< for threads other than the main one, which alone makes the watch and ends it
  std::unique_ptr<FailureWatch> watch_;  ///< where a transport cannot look at the board while it waits
  std::map<Ranks, std::shared_ptr<Comm>> groups_;
};

std::shared_ptr<Comm> ProcessCommunicators::group(const Ranks& ranks, const std::string& name) {
  const auto own = std::lower_bound(ranks.begin(), ranks.end(), options_.rank);
  MEGATRON_CHECK(own != ranks.end() && *own == options_.rank, "rank ", options_.rank, " asks for the group '", name, "' of other ranks");
  if (ranks.size() == 1) return nullptr;
  std::shared_ptr<Comm>& comm = groups_[ranks];
  if (!comm) {
    GroupPlace place{name, ranks, own - ranks.begin()};
    comm = options_.device.is_cuda() ? on_gpus(place) : std::make_shared<LaneComm>(place, transport_of(place), counters_, places_.board);
  }
  return comm;
}

bool ProcessCommunicators::one_place(const Ranks& ranks) const {
  const auto first_of = [&](std::int64_t rank) { return places_.first_of[static_cast<std::size_t>(rank)]; };
  return std::all_of(ranks.begin(), ranks.end(), [&](std::int64_t rank) { return first_of(rank) == first_of(ranks.front()); });
}

std::shared_ptr<Transport> ProcessCommunicators::transport_of(const GroupPlace& place) {
  if (one_place(place.ranks)) return shared_memory(place, key_of(place.ranks));
  const std::vector<Ranks> members = even_places(place.ranks, places_.first_of);
  return members.empty() ? messages(channel_of(place), place, count_up(place.size())) : hierarchical(place, members);
}

std::shared_ptr<Comm> ProcessCommunicators::on_gpus(const GroupPlace& place) {
  const auto make = [this, place](NcclComm::Traffic traffic) { return nccl(place, traffic); };
  return std::make_shared<NcclComm>(place, transport_of(place), counters_, places_.board, make, options_.timeout);
}

c10::intrusive_ptr<c10d::Backend> ProcessCommunicators::nccl(const GroupPlace& place, NcclComm::Traffic traffic) {
  const auto store = talk_.corner(key_of(place.ranks) + "/nccl/" + std::to_string(static_cast<int>(traffic)));
  auto backend = options_.cuda != nullptr ? options_.cuda->make_nccl(store, static_cast<int>(place.rank), static_cast<int>(place.size())) : nullptr;
  if (!backend) {
    throw UserError({.what = "several ranks on GPUs need NCCL",
                     .got = "a CUDA plugin built without it",
                     .fix = "build with nccl.h of NCCL 2.28 (make build CUDA=1), or use --device cpu"});
  }
  start_watch();
  watch_->guard([weak = c10::weak_intrusive_ptr<c10d::Backend>(backend)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
  return backend;
}

std::shared_ptr<ByteChannel> ProcessCommunicators::channel_of(const GroupPlace& place) {
  start_watch();
  const std::string key = key_of(place.ranks);
  talk_.set(key + "/ready/" + std::to_string(options_.rank), "");
  talk_.await(key + "/ready", place.ranks, "making the group " + place.name, [&] { return places_.board->failure(); });
  const GlooOptions options{.rank = place.rank, .size = place.size(), .address = options_.address, .timeout = options_.timeout};
  std::shared_ptr<ByteChannel> channel = connect_gloo(talk_.corner(key + "/gloo"), options);
  watch_->guard([weak = std::weak_ptr(channel)] {
    if (const auto alive = weak.lock()) alive->cancel();
  });
  return channel;
}

std::shared_ptr<Transport> ProcessCommunicators::messages(std::shared_ptr<ByteChannel> channel, const GroupPlace& place, const Ranks& members) {
  return std::make_shared<MessageTransport>(std::move(channel), members, subgroup(place, members), places_.board);
}

std::shared_ptr<Transport> ProcessCommunicators::hierarchical(const GroupPlace& place, const std::vector<Ranks>& members) {
  HierarchicalTransport::Levels levels{.members = members};
  Ranks fellows;
  for (std::size_t host = 0; host < members.size(); ++host) {
    const auto own = std::find(members[host].begin(), members[host].end(), place.rank);
    if (own == members[host].end()) continue;
    levels.host = static_cast<std::int64_t>(host);
    levels.index = own - members[host].begin();
  }
  for (const Ranks& host : members) fellows.push_back(host[static_cast<std::size_t>(levels.index)]);
  const std::shared_ptr<ByteChannel> channel = channel_of(place);
  // Its own memory: a group of the same ranks by itself has another.
  levels.inside = shared_memory(subgroup(place, members[static_cast<std::size_t>(levels.host)]), key_of(place.ranks) + "/inside");
  levels.across = messages(channel, place, fellows);
  levels.flat = messages(channel, place, count_up(place.size()));
  return std::make_shared<HierarchicalTransport>(std::move(levels));
}

/// The first rank makes the memory, the others open it. `key` belongs to this group alone.
std::shared_ptr<Transport> ProcessCommunicators::shared_memory(const GroupPlace& place, const std::string& key) {
  const std::size_t bytes = ExchangeArea::bytes(place.size());
  const std::int64_t first = place.ranks.front();
  const std::string what = "making the group " + place.name;
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
