#include "megatron/parallel/process_communicators.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "megatron/base/checksum.h"
#include "megatron/base/error.h"
#include "megatron/parallel/cuda_plugin.h"
#include "megatron/parallel/failure/failure_monitor.h"
#include "megatron/parallel/failure/hang_watch.h"
#include "megatron/parallel/gloo/byte_channel.h"
#include "megatron/parallel/gloo/gloo_channel.h"
#include "megatron/parallel/gloo/message_transport.h"
#include "megatron/parallel/nccl/nccl_comm.h"
#include "megatron/parallel/rank_list.h"
#include "megatron/parallel/rendezvous/c10d_store.h"
#include "megatron/parallel/rendezvous/wait_for_ranks.h"
#include "megatron/parallel/shared_memory/host_groups.h"
#include "megatron/parallel/shared_memory/shared_memory_transport.h"
#include "megatron/parallel/transport/hierarchical_transport.h"
#include "megatron/parallel/transport/queued_comm.h"

namespace megatron {
namespace {

using Ranks = std::vector<std::int64_t>;

/// Returns the store key of a list of ranks.
std::string store_key(const Ranks& ranks) {
  std::string text;
  for (const std::int64_t rank : ranks) text += std::to_string(rank) + ",";
  return "group/" + std::to_string(ranks.size()) + "-" + checksum_hex(checksum(text));
}

/// Returns the subgroup of `members`, which are ranks in the group and include this rank.
GroupInfo subgroup(const GroupInfo& group_info, const Ranks& members) {
  GroupInfo part{.name = group_info.name};
  for (const std::int64_t member : members) {
    if (member == group_info.rank) part.rank = part.size();
    part.ranks.push_back(group_info.ranks[static_cast<std::size_t>(member)]);
  }
  return part;
}

class ProcessCommunicators final : public Communicators {
 public:
  ProcessCommunicators(RunStore store, const ProcessOptions& options)
      : store_(std::move(store)),
        options_(options),
        host_groups_(find_host_groups(store_, options)),
        device_calls_(
            std::make_shared<DeviceCalls>(host_groups_.host_status, options.rank, options.device)),
        hang_watch_(std::in_place, host_groups_.host_status, hang_watch_options()) {}
  ~ProcessCommunicators() override {
    options_.slots->disconnect();
    groups_.clear();
    // It uses watch_, and reports a failure while this rank still counts as present.
    hang_watch_.reset();
    std::unique_ptr<FailureMonitor> watch;
    {
      const std::lock_guard lock(watch_mutex_);
      watch = std::move(watch_);
    }
    watch.reset();
    host_groups_.host_status->leave(options_.rank);
  }
  std::int64_t rank() const override { return options_.rank; }
  std::int64_t world_size() const override { return options_.world_size; }
  CommCounters& counters() override { return *options_.slots->counters(); }
  void note_iteration(std::int64_t iteration) override {
    host_groups_.host_status->waits().note_iteration(options_.rank, iteration);
  }
  void begin_section(const std::string& what) override {
    host_groups_.host_status->begin_section(options_.rank, what);
  }
  void end_section() override { host_groups_.host_status->end_section(options_.rank); }
  void set_deadline(const Deadline& deadline) override { hang_watch_->set_deadline(deadline); }
  std::shared_ptr<FailureNotice> failure_notice() override { return host_groups_.host_status; }
  /// Thread-safe.
  void abort(const std::string& reason) override {
    host_groups_.host_status->fail(reason, /*is_explained=*/true);
    const std::lock_guard lock(watch_mutex_);
    if (watch_) watch_->publish_failure();
  }
  std::shared_ptr<Comm> group(const Ranks& ranks, const std::string& name) override {
    const auto own = std::lower_bound(ranks.begin(), ranks.end(), options_.rank);
    MEGATRON_CHECK(own != ranks.end() && *own == options_.rank, "rank ", options_.rank,
                   " is not a member of the group '", name, "'");
    if (ranks.size() == 1) return nullptr;
    std::shared_ptr<Comm>& comm = groups_[ranks];
    if (!comm) {
      GroupInfo group_info{name, ranks, own - ranks.begin()};
      comm = options_.device.is_cuda() ? make_nccl_comm(group_info)
                                       : std::make_shared<QueuedComm>(
                                             group_info, make_transport(group_info),
                                             options_.slots->counters(), host_groups_.host_status);
    }
    return options_.slots->connect(name, comm);
  }

 private:
  void start_watch() {
    if (watch_) return;
    const std::lock_guard lock(watch_mutex_);
    watch_ = std::make_unique<FailureMonitor>(
        store_, host_groups_.host_status,
        FailureMonitor::Options{options_.rank, host_groups_.host_leader, options_.timeout});
  }

  /// NCCL ends the process without a word, so HangWatch ends the run before.
  std::chrono::milliseconds nccl_timeout() const {
    return options_.timeout + std::chrono::minutes(1);
  }

  HangWatchOptions hang_watch_options() const {
    HangWatchOptions watch{.rank = options_.rank,
                           .world_size = options_.world_size,
                           .start = options_.start,
                           .folder = options_.hang_reports.folder,
                           .warn_after = options_.hang_reports.warn_after,
                           .timeout = options_.timeout};
    if (options_.device.is_cuda())
      watch.poll_device_calls = [calls = device_calls_] { return calls->poll(); };
    return watch;
  }

  bool is_one_host_group(const Ranks& ranks) const {
    const auto host_leader = [&](std::int64_t rank) {
      return host_groups_.host_leader[static_cast<std::size_t>(rank)];
    };
    return std::all_of(ranks.begin(), ranks.end(), [&](std::int64_t rank) {
      return host_leader(rank) == host_leader(ranks.front());
    });
  }

  std::shared_ptr<Transport> make_transport(const GroupInfo& group_info) {
    if (is_one_host_group(group_info.ranks))
      return make_shared_memory_transport(group_info, store_key(group_info.ranks));
    const std::vector<Ranks> members = even_host_groups(group_info.ranks, host_groups_.host_leader);
    return members.empty() ? make_message_transport(make_channel(group_info), group_info,
                                                    all_ranks(group_info.size()))
                           : make_hierarchical_transport(group_info, members);
  }

  std::shared_ptr<Comm> make_nccl_comm(const GroupInfo& group_info) {
    const auto make = [this, group_info](NcclComm::Traffic traffic) {
      return make_nccl_backend(group_info, traffic);
    };
    return std::make_shared<NcclComm>(group_info, make_transport(group_info),
                                      options_.slots->counters(), host_groups_.host_status,
                                      device_calls_, make, nccl_timeout());
  }

  c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const GroupInfo& group_info,
                                                      NcclComm::Traffic traffic) {
    const auto store = make_c10d_store(
        store_, store_key(group_info.ranks) + "/nccl/" + std::to_string(static_cast<int>(traffic)));
    auto backend =
        options_.cuda != nullptr
            ? options_.cuda->make_nccl(store, static_cast<int>(group_info.rank),
                                       static_cast<int>(group_info.size()), nccl_timeout())
            : nullptr;
    if (!backend) {
      throw UserError(
          {.what = "several ranks on GPUs need NCCL",
           .got = "the CUDA plugin was built without NCCL",
           .fix = "build with nccl.h of NCCL 2.28 (make build CUDA=1), or use --device cpu"});
    }
    start_watch();
    watch_->add_cancel([weak = c10::weak_intrusive_ptr<c10d::Backend>(backend)] {
      if (const auto alive = weak.lock()) alive->abort();
    });
    return backend;
  }

  std::shared_ptr<ByteChannel> make_channel(const GroupInfo& group_info) {
    start_watch();
    std::shared_ptr<ByteChannel> channel = make_checked_channel(make_gloo_channel(
        store_.with_prefix(store_key(group_info.ranks) + "/gloo"), {.rank = group_info.rank,
                                                                    .size = group_info.size(),
                                                                    .address = options_.address,
                                                                    .timeout = options_.timeout}));
    watch_->add_cancel([weak = std::weak_ptr(channel)] {
      if (const auto alive = weak.lock()) alive->cancel();
    });
    return channel;
  }

  /// Makes a transport between the ranks `members` of the group over the channel of the group.
  std::shared_ptr<Transport> make_message_transport(std::shared_ptr<ByteChannel> channel,
                                                    const GroupInfo& group_info,
                                                    const Ranks& members) {
    return std::make_shared<MessageTransport>(
        std::move(channel), members, subgroup(group_info, members), host_groups_.host_status);
  }

  std::shared_ptr<Transport> make_hierarchical_transport(const GroupInfo& group_info,
                                                         const std::vector<Ranks>& members) {
    HierarchicalTransport::Levels levels{.members = members};
    Ranks peers;
    for (std::size_t host = 0; host < members.size(); ++host) {
      const auto own = std::find(members[host].begin(), members[host].end(), group_info.rank);
      if (own == members[host].end()) continue;
      levels.host = static_cast<std::int64_t>(host);
      levels.index = own - members[host].begin();
    }
    for (const Ranks& host : members) peers.push_back(host[static_cast<std::size_t>(levels.index)]);
    const std::shared_ptr<ByteChannel> channel = make_channel(group_info);
    // The key differs from that of a group with the same ranks, which has memory of its own.
    levels.intra_host = make_shared_memory_transport(
        subgroup(group_info, members[static_cast<std::size_t>(levels.host)]),
        store_key(group_info.ranks) + "/inside");
    levels.inter_host = make_message_transport(channel, group_info, peers);
    levels.flat = make_message_transport(channel, group_info, all_ranks(group_info.size()));
    return std::make_shared<HierarchicalTransport>(std::move(levels));
  }

  /// The first rank makes the memory and the others open it. `key` must be unique to this group.
  std::shared_ptr<Transport> make_shared_memory_transport(const GroupInfo& group_info,
                                                          const std::string& key) {
    const std::size_t bytes = SharedMemoryArea::bytes(group_info.size());
    const std::int64_t first = group_info.ranks.front();
    const std::string what = "making the group " + group_info.name;
    std::shared_ptr<SharedMemory> block;
    if (group_info.rank == 0) {
      block = SharedMemory::for_processes(bytes);
      store_.set(key + "/" + std::to_string(first), block->handle());
    } else {
      const auto find_failure = [&] {
        return host_groups_.host_status->is_dead(first) ? ranks_text({first}) + " died"
                                                        : host_groups_.host_status->failure();
      };
      const StoreWait wait{.what = what, .timeout = options_.timeout, .find_failure = find_failure};
      block = SharedMemory::open(wait_for_ranks(store_, key, {first}, wait).front(), bytes);
      if (!block)
        throw CommError(what + ": " + ranks_text({first}) + " has closed its shared memory");
    }
    return std::make_shared<SharedMemoryTransport>(
        SharedMemoryArea(std::move(block), group_info.size()), group_info, host_groups_.host_status,
        options_.timeout);
  }

  RunStore store_;
  ProcessOptions options_;
  HostGroups host_groups_;
  std::shared_ptr<DeviceCalls> device_calls_;
  std::optional<HangWatch> hang_watch_;
  /// Guards watch_ against other threads. Only the main thread makes and ends it.
  std::mutex watch_mutex_;
  /// Present when some transport cannot check host_status while it waits.
  std::unique_ptr<FailureMonitor> watch_;
  std::map<Ranks, std::shared_ptr<Comm>> groups_;
};

}  // namespace

std::unique_ptr<Communicators> make_process_communicators(const RunStore& store,
                                                          const ProcessOptions& options) {
  RunStore communicators = store.with_prefix("communicators");
  const std::int64_t generation = (communicators.add("joined", 1) - 1) / options.world_size;
  return std::make_unique<ProcessCommunicators>(
      communicators.with_prefix(std::to_string(generation)), options);
}

}  // namespace megatron
